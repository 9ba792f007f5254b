r"""Chooses the tasks of learn_things.py and writes their lists.

PYTHONPATH=.:envs python experiments/2026-11-28_alfworld/choose_things.py
"""

import json
import pathlib
import random

from agentgym_envs.alfworld import houses

FOLDER = pathlib.Path(__file__).parent / "six_things"
MORE_TASKS = 60_000
THINGS = ("Box", "CreditCard", "KeyChain", "Laptop", "Pillow", "RemoteControl")
PLACES = 14  # the most in a room
HELD_OUT, RL = 96, 384  # tasks; the others are imitated


def main():
    """Writes imitation.json, train.json and held_out.json; the last has rooms of its own."""
    first = houses.TRAIN_TASKS + houses.TEST_TASKS
    chosen = {True: [], False: []}
    for i in range(first, first + MORE_TASKS):
        task = houses.task_of(i)
        few = len(task.plan.receptacles) <= PLACES
        if task.kind in houses.KINDS[:2] and task.thing in THINGS and few:
            chosen[task.plan.number % 5 == 0].append(i)
    rng = random.Random(0)
    held_out = rng.sample(chosen[True], HELD_OUT)
    rng.shuffle(chosen[False])
    lists = dict(held_out=held_out, train=chosen[False][:RL], imitation=chosen[False][RL:])
    for name, tasks in lists.items():
        rooms = {houses.task_of(i).plan.number for i in tasks}
        (FOLDER / f"{name}.json").write_text(
            json.dumps([f"alfworld_{i}" for i in sorted(tasks)]) + "\n"
        )
        print(f"{name}: {len(tasks)} tasks in {len(rooms)} rooms")


if __name__ == "__main__":
    main()
