"""Prints a table of injected, survived and lost faults: python -m tests.faults.report [RESULTS]

Without an argument, the latest results of the experiments are used. `survived` counts the
disturbances of runs that equal the undisturbed run bit for bit, `lost` the disturbances of other
runs. `episodes lost` counts episodes that were given up or replaced by another sample of their
task.
"""

import json
import pathlib
import sys

COLUMNS = ("injected", "survived", "lost", "episodes lost")


def table(rows):
    """Returns the lines of a Markdown table with one row per type of disturbance."""
    totals = {}
    for row in rows:
        for kind, count in row["injected"].items():
            total = totals.setdefault((row["part"], kind), dict.fromkeys(COLUMNS, 0))
            total["injected"] += count
            total["survived" if row["identical"] else "lost"] += count
            total["episodes lost"] += row["episodes_lost"]
    lines = [
        f"| part | disturbance | {' | '.join(COLUMNS)} |",
        "|---|---|" + "---:|" * len(COLUMNS),
    ]
    for (part, kind), total in sorted(totals.items()):
        lines.append(f"| {part} | {kind} | {' | '.join(str(total[c]) for c in COLUMNS)} |")
    return lines


def main(argv):
    """Prints the table of a results file."""
    experiments = pathlib.Path(__file__).parents[2] / "experiments"
    path = argv[0] if argv else sorted(experiments.glob("*_faults/results.jsonl"))[-1]
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    sys.stdout.write("\n".join(table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
