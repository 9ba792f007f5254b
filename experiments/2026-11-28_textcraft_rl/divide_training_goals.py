"""Divides the training goals of 2026-11-26 into those of imitation and those of RL.

  PYTHONPATH=. python experiments/2026-11-28_textcraft_rl/divide_training_goals.py

Of each family of goals, every second one is imitated. The held-out goals are those of 2026-11-26.
"""

import itertools
import json
import pathlib

HERE = pathlib.Path(__file__).parent


def main():
    """Writes imitation.json and rl.json, and prints their sizes."""
    goals = json.loads((HERE.parent / "2026-11-26_textcraft_warm_start/train.json").read_text())
    goals.sort(key=lambda goal: goal["group"])
    lists = {"imitation": [], "rl": []}
    for _, family in itertools.groupby(goals, key=lambda goal: goal["group"]):
        family = list(family)
        lists["imitation"] += family[::2]
        lists["rl"] += family[1::2]
    for name, listed in lists.items():
        lines = ",\n".join(map(json.dumps, listed))
        (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        print(f"{name}: {len(listed)} goals")


if __name__ == "__main__":
    main()
