"""Writes results.csv from the runs of a sweep and prints the tables of README.md.

PYTHONPATH=. python experiments/2026-11-25_mixture/tables.py runs/mixture
PYTHONPATH=. python experiments/2026-11-25_mixture/tables.py  # prints only
"""

import csv
import json
import pathlib
import re
import statistics
import sys

from agentgym_jax.evaluation.statistics import sign_flip_p, student_interval

RESULTS = pathlib.Path(__file__).with_name("results.csv")
ENVIRONMENTS = ("babyai", "maze")


def collect(sweep):
    """Writes every evaluation of every run: success in percent by environment."""
    rows = []
    for path in sorted(pathlib.Path(sweep).glob("runs/*/metrics.jsonl")):
        train, seed = re.fullmatch(r"train=(\w+)_seed=(\d+)", path.parent.name).groups()
        for line in map(json.loads, path.read_text().splitlines()):
            if "eval/success" in line:
                scores = [f"{100 * line[f'eval/{name}/success']:.2f}" for name in ENVIRONMENTS]
                rows.append([train, seed, line["step"], *scores])
    with open(RESULTS, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["train", "seed", "step", *ENVIRONMENTS], *rows])


def main():
    """Prints one row per environment, trained environments and step."""
    if len(sys.argv) > 1:
        collect(sys.argv[1])
    with open(RESULTS, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    print(
        "| success on | trained on | steps | mean | by seed | minus the start | 95 % interval | p |"
    )
    print("|" + "---|" * 8)
    for name in ENVIRONMENTS:
        found = {}  # (train, step) -> success by seed
        for row in rows:
            found.setdefault((row["train"], int(row["step"])), []).append(float(row[name]))
        for (train, step), values in found.items():
            if step in (45, 90):
                change = [a - b for a, b in zip(values, found[train, 0], strict=True)]
                low, high = student_interval(change)
                print(
                    f"| {name} | {train} | {step} | {statistics.mean(values):.1f} | "
                    f"{', '.join(f'{x:.0f}' for x in values)} | {statistics.mean(change):+.1f} | "
                    f"{low:+.1f} to {high:+.1f} | {sign_flip_p(change):.2f} |"
                )
        starts = [x for (_, step), values in found.items() if step == 0 for x in values]
        print(f"| {name} | nothing | 0 | {statistics.mean(starts):.1f} | | | | |")
    print("\n| success on | steps | both minus alone | 95 % interval | p |\n|---|---|---|---|---|")
    for name in ENVIRONMENTS:
        of = {(r["train"], r["step"], r["seed"]): float(r[name]) for r in rows}
        seeds = sorted({r["seed"] for r in rows})
        for step in ("45", "90"):
            change = [of["both", step, seed] - of[name, "45", seed] for seed in seeds]
            low, high = student_interval(change)
            print(
                f"| {name} | {step} | {statistics.mean(change):+.1f} | {low:+.1f} to {high:+.1f} | "
                f"{sign_flip_p(change):.2f} |"
            )


if __name__ == "__main__":
    main()
