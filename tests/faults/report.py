"""What was injected, survived and lost, as a table: python -m tests.faults.report [RESULTS]

Without a file: the latest of the experiments. `survived` are disturbances of runs that came to the
end of the undisturbed one, bit for bit; `lost` those of runs that did not; `episodes lost` were given
up or replaced by another sample of their task.
"""

import json
import pathlib
import sys

COLUMNS = ("injected", "survived", "lost", "episodes lost")


def table(rows):
    """Rows of results -> lines of Markdown, one for each kind of disturbance."""
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
    """Prints the table of a file of results."""
    experiments = pathlib.Path(__file__).parents[2] / "experiments"
    path = argv[0] if argv else sorted(experiments.glob("*_faults/results.jsonl"))[-1]
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    sys.stdout.write("\n".join(table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
