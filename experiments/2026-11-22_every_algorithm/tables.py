"""Tables and figures from results/: final success and learning curves of every algorithm.

python experiments/2026-11-22_every_algorithm/tables.py
"""

import json
import pathlib
import re
from collections import defaultdict

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

HERE = pathlib.Path(__file__).parent
TARGET = 0.9  # share of the optimal reward, which is 1 in both environments
# Metrics per environment: held-out sampled success, its greedy counterpart, and the training curve.
WHAT = {
    "bandit": ("eval/score", "eval/score_greedy", "rollout/score_mean", "share of the best pay"),
    "two_rooms": ("eval/success", "eval/success_greedy", "rollout/success", "solved"),
}
BLUE, RED = "#0072B2", "#D55E00"


def read(folder: pathlib.Path) -> dict[str, dict[int, list[dict]]]:
    """Returns the metrics lines, keyed by algorithm and then by seed."""
    runs: dict[str, dict[int, list[dict]]] = defaultdict(dict)
    for path in sorted(folder.glob("*.jsonl")):
        name, seed = re.fullmatch(r"(.*)_(\d)", path.stem).groups()
        runs[name][int(seed)] = [json.loads(line) for line in path.read_text().splitlines()]
    return runs


def curve(lines: list[dict], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns two arrays: the episodes sampled until each step, and the metric at each step."""
    steps = [m for m in lines if m["step"] > 0]
    return np.cumsum([m["rollout/episodes"] for m in steps]), np.array([m[metric] for m in steps])


def smooth(values: np.ndarray, width: int = 3) -> np.ndarray:
    """Returns a running mean over the last `width` steps."""
    return np.array([values[max(0, i + 1 - width) : i + 1].mean() for i in range(len(values))])


def first_reach(lines: list[dict], metric: str) -> str:
    """Returns the number of episodes after which the mean of three training steps first reached the
    target.
    """
    episodes, values = curve(lines, metric)
    reached = np.flatnonzero((smooth(values) >= TARGET)[2:])
    return f"{episodes[reached[0] + 2]:.0f}" if len(reached) else "-"


def table(runs, sampled: str, greedy: str, training: str) -> str:
    """Returns a Markdown table, sorted by the worst seed of each algorithm, best first."""
    rows = []
    for name, seeds in runs.items():
        ends = [lines[-1] for _, lines in sorted(seeds.items())]
        values = [100 * m[sampled] for m in ends]
        episodes = [curve(lines, training)[0][-1] for lines in seeds.values()]
        cells = [
            f"`{name}`",
            ", ".join(f"{v:.1f}" for v in values),
            f"**{min(values):.1f}**",
            ", ".join(f"{100 * m[greedy]:.1f}" for m in ends),
            ", ".join(first_reach(lines, training) for _, lines in sorted(seeds.items())),
            f"{max(episodes):.0f}",
            f"{sum(v >= 100 * TARGET for v in values)} of {len(values)}",
        ]
        rows.append((-min(values), "| " + " | ".join(cells) + " |"))
    head = "| algorithm | sampled, by seed | worst | greedy, by seed | episodes to 90 % in training | episodes | seeds >= 90 % |"
    return "\n".join([head, "|---" * 7 + "|", *(row for _, row in sorted(rows))])


def figure(runs, title: str, sampled: str, training: str, unit: str, out: pathlib.Path) -> None:
    """Draws one plot per algorithm: thin lines are seeds in training, the thick line is their mean,
    dots are evaluations.
    """
    columns = 5
    rows = -(-len(runs) // columns)
    fig = Figure(figsize=(2.6 * columns, 2.0 * rows + 0.5), layout="constrained")
    axes = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax in axes[len(runs) :]:
        ax.axis("off")
    for ax, (name, seeds) in zip(axes, sorted(runs.items()), strict=False):
        curves = [curve(lines, training) for lines in seeds.values()]
        for episodes, values in curves:
            ax.plot(episodes, smooth(values), color=BLUE, lw=0.7, alpha=0.5)
        shortest = min(len(values) for _, values in curves)
        mean = np.mean([smooth(values)[:shortest] for _, values in curves], axis=0)
        at = np.mean([episodes[:shortest] for episodes, _ in curves], axis=0)
        ax.plot(at, mean, color=BLUE, lw=1.8)
        start = seeds[0][0][sampled]
        for lines, (episodes, _) in zip(seeds.values(), curves, strict=True):
            ax.plot([0, episodes[-1]], [start, lines[-1][sampled]], "o", ms=3, color=RED)
        ax.axhline(TARGET, color="#999999", lw=0.8, ls="--")
        ax.set_title(name, fontsize=9, loc="left", fontweight="bold")
        ax.set_ylim(0, 1.02)
        ax.grid(color="#E6E6E6", lw=0.6)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    fig.suptitle(title, fontsize=10)
    fig.supxlabel("episodes", fontsize=9)
    fig.supylabel(unit, fontsize=9)
    FigureCanvasAgg(fig)
    fig.savefig(out, dpi=110, metadata={"Software": None})


def main() -> None:
    """Prints the tables and writes a figure per environment."""
    for of, (sampled, greedy, training, unit) in WHAT.items():
        runs = read(HERE / "results" / of)
        if not runs:
            continue
        starts = {round(seeds[0][0][sampled], 3) for seeds in runs.values()}
        print(f"\n## {of}: warm start {sorted(starts)}\n")
        print(table(runs, sampled, greedy, training))
        title = f"{of}: seeds (thin) and their mean in training, held-out evaluation (dots), 90 % of optimum (dashed)"
        figure(runs, title, sampled, training, unit, HERE / f"{of}.png")


if __name__ == "__main__":
    main()
