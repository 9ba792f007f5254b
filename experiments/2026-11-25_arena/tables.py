"""Prints the table of README.md from tune.csv and test.csv, the `runs.csv` of the two sweeps.

python experiments/2026-11-25_arena/tables.py
"""

import collections
import csv
import pathlib
import statistics

HERE = pathlib.Path(__file__).parent
T_975 = 2.776  # quantile of Student's t with four degrees of freedom


def read(name: str) -> list[dict[str, str]]:
    """Returns the rows of a file."""
    with open(HERE / name, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Prints one row per algorithm, the best mean first."""
    seeds: dict[str, dict[str, list[float]]] = collections.defaultdict(dict)
    for row in read("tune.csv"):
        found = seeds[row["algorithm"]].setdefault(row["learning_rate"], [])
        found.append(100 * float(row["eval/success"]))
    tuned = {name: {r: statistics.mean(x) for r, x in own.items()} for name, own in seeds.items()}
    tested: dict[str, list[float]] = collections.defaultdict(list)
    tokens: dict[str, list[float]] = collections.defaultdict(list)
    for row in read("test.csv"):
        tested[row["algorithm"]].append(100 * float(row["eval/success"]))
        tokens[row["algorithm"]].append(float(row["tokens"]))
    rates = list(tuned["grpo"])
    print(f"| algorithm | {' | '.join(rates)} | mean | 95 % interval | seeds 0 to 4 | tokens |")
    print("|" + "---|" * (len(rates) + 5))
    for name in sorted(tested, key=lambda name: -statistics.mean(tested[name])):
        best = max(tuned[name], key=tuned[name].__getitem__)
        tuning = [f"**{x:.0f}**" if r == best else f"{x:.0f}" for r, x in tuned[name].items()]
        mean = statistics.mean(tested[name])
        half = T_975 * statistics.stdev(tested[name]) / len(tested[name]) ** 0.5
        print(
            f"| `{name}` | {' | '.join(tuning)} | {mean:.1f} | {max(0, mean - half):.0f} to "
            f"{min(100, mean + half):.0f} | {', '.join(f'{x:.0f}' for x in tested[name])} | "
            f"{statistics.mean(tokens[name]):.0f} |"
        )


if __name__ == "__main__":
    main()
