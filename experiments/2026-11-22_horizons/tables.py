"""Draws the table and figure of the turn-limit schedules from results/.

python experiments/2026-11-22_horizons/tables.py
"""

import json
import math
import pathlib

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

HERE = pathlib.Path(__file__).parent
NAMES = ("short", "long", "stepwise", "adaptive")
COLOURS = dict(zip(NAMES, ("#999999", "#D55E00", "#0072B2", "#009E73"), strict=True))


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Returns Wilson's confidence interval of a share."""
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return centre - half, centre + half


def load(name: str) -> list[tuple[list[dict], dict]]:
    """Returns (metrics, final evaluation) of every available seed."""
    found = sorted((HERE / "results").glob(f"{name}_?.jsonl"))
    return [
        (
            [json.loads(line) for line in path.read_text().splitlines()],
            json.loads(path.with_suffix(".final.json").read_text()),
        )
        for path in found
    ]


def tokens(lines: list[dict]) -> np.ndarray:
    """Returns the training tokens up to each line of the metrics."""
    return np.cumsum(
        [m.get("rollout/tokens_mean", 0) * m.get("rollout/episodes", 0) for m in lines]
    )


def main() -> None:
    """Prints the table and writes horizons.png."""
    fig = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = fig.subplots(1, 2)
    print(
        "| horizon | held-out success, by seed | mean | 95 % interval, all seeds together | deepest half, by seed | steps | tokens (1000) |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in NAMES:
        runs = load(name)
        if not runs:
            continue
        finals = [final for _, final in runs]
        values = [f["eval/success"] for f in finals]
        n = sum(int(f["eval/episodes"]) for f in finals)
        low, high = wilson(float(np.mean(values)), n)
        deep = [np.mean([f[f"eval/success/depth {d}"] for d in (4, 5, 6)]) for f in finals]
        print(
            f"| {name} | {', '.join(f'{100 * v:.1f}' for v in values)} | **{100 * np.mean(values):.1f}** "
            f"| {100 * low:.1f} to {100 * high:.1f} | {', '.join(f'{100 * v:.1f}' for v in deep)} "
            f"| {', '.join(str(f['step']) for f in finals)} "
            f"| {', '.join(f'{tokens(lines)[-1] / 1000:.0f}' for lines, _ in runs)} |"
        )
        for i, (lines, final) in enumerate(runs):
            at = tokens(lines) / 1000
            scored = [j for j, m in enumerate(lines) if "eval/success" in m]
            xs = [at[j] for j in scored] + [at[-1]]
            ys = [lines[j]["eval/success"] for j in scored] + [final["eval/success"]]
            label = name if i == 0 else None
            left.plot(
                xs, ys, color=COLOURS[name], lw=1.2, marker="o", ms=2.5, alpha=0.8, label=label
            )
            right.step(
                at[1:],
                [m["horizon/turns"] for m in lines[1:]],
                color=COLOURS[name],
                lw=1.2,
                alpha=0.8,
            )
    left.set_ylim(0, 1.02)
    left.set_ylabel("held-out success, 8 turns")
    right.set_ylabel("turn limit in training")
    right.set_ylim(0, 9)
    left.legend(frameon=False, fontsize=8)
    for ax in (left, right):
        ax.set_xlabel("tokens of training episodes (1000)")
        ax.grid(color="#E6E6E6", lw=0.6)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    FigureCanvasAgg(fig)
    fig.savefig(HERE / "horizons.png", dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
