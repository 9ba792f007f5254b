r"""Writes the demonstrations of the three environments into one file.

PYTHONPATH=.:envs python experiments/2026-11-26_textcraft_warm_start/write_demonstrations.py --copies=15 --out=runs/textcraft.jsonl
PYTHONPATH=.:envs python experiments/2026-11-29_three_environments/write_demonstrations.py --textcraft=runs/textcraft.jsonl --out=runs/demonstrations.jsonl
"""

import argparse
import importlib
import json
import pathlib
import tempfile

from agentgym_jax.data import demonstrations
from agentgym_jax.data.tasks import Task

rooms = importlib.import_module("experiments.2026-11-25_two_environments.agents")
sciworld = importlib.import_module("experiments.2026-11-26_sciworld_horizons.agents")


def play(environment, tasks, **agent):
    """Returns the episodes of a set of demonstrations, one JSON object per line."""
    rows = json.loads(pathlib.Path(tasks["path"]).read_text())
    listed = [Task(environment, int(r["item_id"].split("_")[1]), r["group"]) for r in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "episodes.jsonl"
        demonstrations.record(listed, path, **agent)
        return path.read_text()


def main() -> None:
    """Writes the file; prints the number of episodes of each set."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--textcraft", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    texts = {"textcraft": args.textcraft.read_text()}
    for sets in (rooms.demonstrations("babyai"), sciworld.demonstrations()):
        for name, shown in sets.items():
            texts[f"{shown['environment']} {name}"] = play(**shown)
    args.out.write_text("".join(texts.values()))
    for name, text in texts.items():
        print(f"{name}: {len(text.splitlines())} episodes")


if __name__ == "__main__":
    main()
