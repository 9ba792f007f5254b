r"""Writes the demonstrations of the warm start, with colours and kinds of wood exchanged.

PYTHONPATH=.:envs python experiments/2026-11-26_textcraft_warm_start/write_demonstrations.py --out=runs/demonstrations.jsonl

The expert with detours plays every goal of train.json several times. In each copy, all colours are
replaced by a permutation of the colours, and the kinds of wood likewise.
"""

import argparse
import json
import pathlib
import random
import re
import tempfile

from divide_goals import COLOURS, HERE, WOODS

from agentgym_jax.data import demonstrations
from agentgym_jax.data.tasks import Task


def permutation(words: str, rng: random.Random) -> dict[str, str]:
    """Returns a random permutation of the words of a pattern."""
    names = words.split("|")
    return dict(zip(names, rng.sample(names, len(names)), strict=True))


def rename(record: dict, names: dict[str, str]) -> dict:
    """Returns the record with other words; ids of items have underscores instead of spaces."""
    spelled = names | {a.replace(" ", "_"): b.replace(" ", "_") for a, b in names.items()}
    longest_first = sorted(spelled, key=len, reverse=True)
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(longest_first)})(?![a-z])")
    turns = [
        {**turn, "value": pattern.sub(lambda found: spelled[found[0]], turn["value"])}
        for turn in record["conversations"]
    ]
    return {**record, "conversations": turns}


def main() -> None:
    """Writes the file and prints the number of its episodes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--copies", type=int, default=30)
    parser.add_argument("--epsilon", type=float, default=0.15, help="probability of a detour")
    args = parser.parse_args()
    rng, records = random.Random(0), []
    goals = json.loads((HERE / "train.json").read_text())
    tasks = [Task("textcraft", int(g["item_id"].split("_")[1]), g["group"]) for g in goals]
    for copy in range(args.copies):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "episodes.jsonl"
            demonstrations.record(
                tasks, path, agent="mixed", epsilon=args.epsilon, max_turns=20, seed=100 + copy
            )
            for line in path.read_text().splitlines():
                names = permutation(COLOURS, rng) | permutation(WOODS, rng)
                records.append(rename(json.loads(line), names))
    rng.shuffle(records)
    args.out.write_text("".join(json.dumps(record) + "\n" for record in records))
    print(f"{len(records)} episodes of {len(tasks)} goals in {args.out}")


if __name__ == "__main__":
    main()
