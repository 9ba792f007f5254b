"""Counts the held-out worlds that occur in training, and prints success without them.

  PYTHONPATH=.:envs:experiments/2026-11-21_quickstart_four_levels python experiments/2026-11-25_qwen_babyai/held_out.py

solved.json has the indices of the tasks that each run trained on and of the tasks that it solved.
"""

import json
import pathlib

from worlds import fingerprint, indices

from configs.rl import babyai_qwen


def main() -> None:
    """Prints the counts and one row for each run and player."""
    runs = json.loads(pathlib.Path(__file__).with_name("solved.json").read_text())
    tasks = babyai_qwen.get_config().environments.babyai
    worlds = {index: fingerprint(index) for index in indices(tasks.eval)}
    possible = {fingerprint(index) for index in indices(tasks.train)}
    for name, level in babyai_qwen.LEVELS.items():
        ours = [worlds[index] for index in worlds if index % 40 == level]
        shared = sum(world in possible for world in ours)
        print(
            f"{name}: {len(set(ours))} distinct worlds, {shared} of {len(ours)} in the training range"
        )
    for name, run in runs.items():
        trained = {fingerprint(index) for index in run.get("trained", ())}
        unseen = {index for index in worlds if worlds[index] not in trained}
        shares = [
            f"{key} {100 * len(unseen.intersection(solved)) / len(unseen):.1f}"
            for key, solved in run.items()
            if key != "trained"
        ]
        print(f"{name}: {len(unseen)} tasks with worlds that were not trained: {', '.join(shares)}")


if __name__ == "__main__":
    main()
