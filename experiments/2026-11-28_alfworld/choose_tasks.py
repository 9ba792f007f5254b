r"""Chooses the tasks of learn_qwen.py from two evaluations of the expert, and writes their lists.

  for split in train test; do
    python -m agentgym_jax.evaluate --config=experiments/2026-11-28_alfworld/expert.py:split=$split \
        --workdir=runs/expert_$split --model=expert
  done
  python experiments/2026-11-28_alfworld/choose_tasks.py runs/expert_train runs/expert_test
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent


def solved_tasks(folder, turns, places):
    """Returns {room: ids} of the tasks that the expert solves in few turns in a room of few places."""
    rooms = {}
    for line in (pathlib.Path(folder) / "trajectories/eval_000000.jsonl").open():
        episode = json.loads(line)
        room, _, rest = episode["first_observation"].partition("Your task is to:")
        few = len(episode["turns"]) <= turns and rest.count("go to") <= places
        if episode["success"] and few:
            rooms.setdefault(room, []).append(episode["item_id"])
    return rooms


def main(train, test):
    """Writes imitation.json, train.json and held_out.json; no two lists share a room."""
    held_out = solved_tasks(test, 7, 10)
    rooms = solved_tasks(train, 7, 10)
    trained = {}
    for index, room in enumerate(sorted(rooms.keys() - held_out.keys())):
        if index % 4 == 0:
            held_out[room] = rooms[room]
        elif index % 4 != 2:
            trained[room] = rooms[room]
    others = solved_tasks(train, 8, 14)
    shown = {room: others[room] for room in others.keys() - held_out.keys() - trained.keys()}
    for name, chosen in dict(imitation=shown, train=trained, held_out=held_out).items():
        ids = sorted(i for room in chosen.values() for i in room)
        (HERE / "easy_tasks" / f"{name}.json").write_text(json.dumps(ids) + "\n")
        sys.stdout.write(f"{name}: {len(ids)} tasks in {len(chosen)} rooms\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
