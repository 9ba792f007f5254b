r"""Writes the lists of SciWorld's Lifespan tasks for demonstrations, RL and evaluation.

  PYTHONPATH=.:envs python experiments/2026-11-26_sciworld_horizons/list_tasks.py

The lists are ScienceWorld's own splits: demonstrations use `dev`, RL `train`, evaluations `test`.
"""

import json
import pathlib

from agentgym_envs.sciworld.tasks import task_manifest

HERE = pathlib.Path(__file__).parent
SPLITS = dict(shown="dev", train="train", held_out="test")


def main() -> None:
    """Writes the lists and prints their sizes."""
    lifespan = [task for task in task_manifest() if task["task"].startswith("lifespan-")]
    for name, split in SPLITS.items():
        rows = [
            json.dumps({"item_id": f"sciworld_{task['data_idx']}", "group": task["task"]})
            for task in lifespan
            if task["split"] == split
        ]
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
        print(f"{name}: {len(rows)} tasks")


if __name__ == "__main__":
    main()
