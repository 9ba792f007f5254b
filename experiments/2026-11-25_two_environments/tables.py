r"""Tables and figure of the comparison of horizons at equal tokens.

  PYTHONPATH=. python experiments/2026-11-25_two_environments/tables.py --sweep=runs/horizons --name=babyai
  PYTHONPATH=. python experiments/2026-11-25_two_environments/tables.py

The first command copies the evaluations of a sweep to `babyai.csv`. The second prints the tables
and draws `horizons.png`. Tokens are those of the training episodes, sampled and observed. Success
between two evaluations is interpolated linearly.
"""

import argparse
import collections
import csv
import json
import pathlib
from collections.abc import Iterator

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agentgym_jax.evaluation import statistics

HERE = pathlib.Path(__file__).parent
FIELDS = ("horizon", "learning_rate", "seed", "step", "tokens", "success", "limit")
COLOURS = dict(short="#999999", long="#D55E00", growing="#0072B2", adaptive="#009E73")
Curve = list[tuple[float, float]]  # tokens and success of each evaluation


def evaluations(sweep: pathlib.Path) -> Iterator[dict]:
    """Yields the evaluations of the finished runs of a sweep."""
    record = json.loads((sweep / "sweep.json").read_text())
    for run in record["runs"]:
        path = sweep / "runs" / run["name"] / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if not lines or lines[-1]["step"] < record["total_steps"][run["name"]]:
            continue
        tokens = 0.0
        for m in lines:
            tokens += m.get("rollout/tokens_mean", 0) * m.get("rollout/episodes", 0)
            if "eval/success" in m:
                yield dict(
                    run["variant"],
                    seed=run["seed"],
                    step=m["step"],
                    tokens=round(tokens),
                    success=round(100 * m["eval/success"], 2),
                    limit=int(m.get("rollout/turns_max", 0)),
                )


def read(name: str) -> dict[tuple[str, str], dict[int, Curve]]:
    """Returns the curves of a file by learning rate and horizon, then by seed."""
    found: dict = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(HERE / f"{name}.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place = found[row["learning_rate"], row["horizon"]]
            place[int(row["seed"])].append((float(row["tokens"]), float(row["success"])))
    return found


def at(curve: Curve, tokens: float) -> float:
    """Returns the success of a run after this number of tokens."""
    return float(np.interp(tokens, [x for x, _ in curve], [y for _, y in curve]))


def budget_of(curves: dict[tuple[str, str], dict[int, Curve]]) -> float:
    """Returns the number of tokens that every run has reached, rounded down to thousands."""
    shortest = min(curve[-1][0] for seeds in curves.values() for curve in seeds.values())
    return shortest // 1000 * 1000


def print_table(name: str) -> None:
    """Prints one row per learning rate and horizon."""
    curves = read(name)
    budget = budget_of(curves)
    print(f"{name}: success after {budget / 1000:.0f} thousand tokens")
    print("| rate | horizon | mean | seeds | minus long | 95 % interval | p | at half |")
    print("|---|---|---|---|---|---|---|---|")
    for (rate, horizon), seeds in curves.items():
        values = {seed: at(curve, budget) for seed, curve in sorted(seeds.items())}
        half = np.mean([at(curve, budget / 2) for curve in seeds.values()])
        long = {seed: at(curve, budget) for seed, curve in curves.get((rate, "long"), {}).items()}
        pairs = [values[seed] - long[seed] for seed in values if seed in long]
        cells = ["", "", ""]
        if horizon != "long" and len(pairs) > 1:
            low, high = statistics.student_interval(pairs) or (float("nan"),) * 2
            p = statistics.sign_flip_p(pairs)
            cells = [f"{np.mean(pairs):+.1f}", f"{low:.1f} to {high:.1f}", f"{p:.2f}"]
        print(
            f"| {rate} | `{horizon}` | {np.mean(list(values.values())):.1f} | "
            f"{', '.join(f'{x:.0f}' for x in values.values())} | {' | '.join(cells)} | {half:.1f} |"
        )


def draw(names: list[str]) -> None:
    """Draws the mean success against tokens, one panel per environment and learning rate."""
    panels = [(name, rate) for name in names for rate in dict.fromkeys(r for r, _ in read(name))]
    fig = Figure(figsize=(4 * len(panels), 3.2), layout="constrained")
    for axes, (name, rate) in zip(np.atleast_1d(fig.subplots(1, len(panels))), panels, strict=True):
        curves = read(name)
        grid = np.linspace(0, budget_of(curves), 50)
        for (own, horizon), seeds in curves.items():
            if own == rate:
                values = np.array([[at(curve, x) for x in grid] for curve in seeds.values()])
                axes.plot(grid / 1000, values.mean(0), label=horizon, color=COLOURS[horizon])
                axes.fill_between(
                    grid / 1000, values.min(0), values.max(0), color=COLOURS[horizon], alpha=0.12
                )
        axes.set(title=f"{name}, rate {rate}", xlabel="thousand tokens", ylabel="success (%)")
        axes.set_ylim(0)
        axes.legend(frameon=False)
    FigureCanvasAgg(fig).print_png(str(HERE / "horizons.png"))


def main() -> None:
    """Copies the evaluations of a sweep, or prints the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep")
    parser.add_argument("--name")
    args = parser.parse_args()
    if args.sweep:
        with open(HERE / f"{args.name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(evaluations(pathlib.Path(args.sweep)))
        return
    names = [name for name in ("babyai", "sciworld") if (HERE / f"{name}.csv").exists()]
    for name in names:
        print_table(name)
    draw(names)


if __name__ == "__main__":
    main()
