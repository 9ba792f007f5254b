r"""Writes the curves of runs: success and contents of the summaries.

PYTHONPATH=.:envs python experiments/2026-11-27_compaction/measure.py runs/recall_* --out=experiments/2026-11-27_compaction/curves.csv
"""

import argparse
import csv
import json
import pathlib

from recall import NAMES, draw


def measure(path):
    """Returns the means over the episodes of a file."""
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    right, wrong, tokens, known, recalled = [], [], [], [], []
    for episode in episodes:
        colours, choices = draw(int(episode["item_id"].rpartition("_")[2]))
        asked = set(colours) & set(choices)
        if "Summar" not in str(episode["conversations"]):
            continue
        turn = [t for t in episode["turns"] if t["action_start"] < episode["branch_starts"][0]][-1]
        said = set(turn["text"].split()) & set(NAMES)
        right.append(len(said & set(colours)))
        wrong.append(len(said - set(colours)))
        tokens.append(turn["action_stop"] - turn["action_start"])
        known.append(asked <= said)
        recalled += [episode["success"]] if asked <= said else []

    def mean(values):
        return round(sum(values) / len(values), 3) if values else ""

    return dict(
        episodes=len(episodes),
        success=mean([episode["success"] for episode in episodes]),
        right_colours=mean(right),
        wrong_colours=mean(wrong),
        summary_tokens=mean(tokens),
        asked_colour_in_summary=mean(known),
        success_if_in_summary=mean(recalled),
    )


def main():
    """Writes the table: a row per evaluation of held-out tasks, and per training step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    rows = [
        dict(run=run.name, tasks=tasks, step=int(path.stem[-6:])) | measure(path)
        for run in args.runs
        for tasks, files in (("held out", "eval_*"), ("training", "step_*"))
        for path in sorted(run.glob(f"trajectories/{files}.jsonl"))
    ]
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
