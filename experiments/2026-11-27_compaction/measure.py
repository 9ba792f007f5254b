r"""Writes the curves of runs: success, and what the summaries say.

PYTHONPATH=.:envs python experiments/2026-11-27_compaction/measure.py runs/recall_* --out=experiments/2026-11-27_compaction/curves.csv
"""

import argparse
import csv
import json
import pathlib
import re

from recall import NAMES, draw

FACT = re.compile(rf"({'|'.join(NAMES)})([0-9])")


def measure(path):
    """Returns the means over the held-out episodes of a file."""
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    right, wrong, tokens, known, recalled = [], [], [], [], []
    for episode in episodes:
        facts, asked = draw(int(episode["item_id"].rpartition("_")[2]))
        if not episode.get("branch_starts"):
            continue
        turn = [t for t in episode["turns"] if t["action_start"] < episode["branch_starts"][0]][-1]
        said = dict(FACT.findall(turn["text"]))
        correct = {name for name, code in said.items() if facts.get(name) == code}
        right.append(len(correct))
        wrong.append(len(said) - len(correct))
        tokens.append(turn["action_stop"] - turn["action_start"])
        known.append(asked in correct)
        recalled += [episode["success"]] if asked in correct else []

    def mean(values):
        return round(sum(values) / len(values), 3) if values else ""

    return dict(
        episodes=len(episodes),
        success=mean([episode["success"] for episode in episodes]),
        right_facts=mean(right),
        wrong_facts=mean(wrong),
        summary_tokens=mean(tokens),
        asked_fact_in_summary=mean(known),
        success_if_in_summary=mean(recalled),
    )


def main():
    """Writes the table, one row per evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    rows = [
        dict(run=run.name, step=int(path.stem[-6:])) | measure(path)
        for run in args.runs
        for path in sorted(run.glob("trajectories/eval_*.jsonl"))
    ]
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
