"""Divides TextCraft's training goals into those that imitation shows and those of RL.

PYTHONPATH=.:envs python experiments/2026-11-27_qwen_learns/divide_goals.py
"""

import json
import pathlib
import random

from agentgym_envs.textcraft.tasks import task_manifest

HERE = pathlib.Path(__file__).parent
SHOWN = 40


def main() -> None:
    """Writes `shown.json` and `train.json`, and prints their sizes."""
    goals = [task for task in task_manifest() if task["split"] == "train"]
    random.Random(0).shuffle(goals)
    for name, part in (("shown", goals[:SHOWN]), ("train", goals[SHOWN:])):
        lines = [
            json.dumps(
                {"item_id": f"textcraft_{task['data_idx']}", "group": f"depth {task['depth']}"}
            )
            for task in sorted(part, key=lambda task: task["data_idx"])
        ]
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{name}: {len(part)} goals")


if __name__ == "__main__":
    main()
