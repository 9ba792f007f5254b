"""What panels are drawn from: colours, curves, bands and the stages of the horizon."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from agentgym_jax.viewer.series import Run, horizon_stages, rolling_mean

# Okabe and Ito's palette, told apart with any colour vision (https://jfly.uni-koeln.de/color/).
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
PALETTE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK, YELLOW)
_ROLLING_STEPS = 10
_FEW_POINTS = 30  # a curve of at most this many points shows them
_MAX_STAGES = 12  # an adaptive horizon changes too often to be drawn as background


def shade_horizon(ax: Axes, run: Run) -> None:
    """Background bands, darker for longer horizons, each with its turn limit.

    Not with several environments: each has stages of its own.
    """
    stages = horizon_stages(*run.series("horizon/turns"))
    if run.environments("horizon/turns") or not 1 < len(stages) <= _MAX_STAGES:
        return
    longest = max(turns for _, _, turns in stages)
    for first, last, turns in stages:
        ax.axvspan(first - 0.5, last + 0.5, color=SKY, alpha=0.22 * turns / longest, lw=0)
        ax.text(
            (first + last) / 2,
            0.985,
            f"{turns:g} turns",
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=7,
            color="#555555",
        )


def line(ax: Axes, run: Run, name: str, label: str, color: str, **style: Any) -> bool:
    """Draws one metric; False if the run does not have it."""
    steps, values = run.series(name)
    if not len(steps):
        return False
    marker = "o" if len(steps) <= _FEW_POINTS else ""
    ax.plot(steps, values, label=label, color=color, marker=marker, **style)
    return True


def smooth_line(ax: Axes, run: Run, name: str, label: str, color: str) -> None:
    """The values faintly and their rolling mean on top."""
    steps, values = run.series(name)
    if not len(steps):
        return
    if len(steps) <= _ROLLING_STEPS:
        line(ax, run, name, label, color)
        return
    ax.plot(steps, values, color=color, alpha=0.3, lw=0.9)
    mean = rolling_mean(values, _ROLLING_STEPS)
    ax.plot(steps, mean, color=color, label=f"{label}, mean of {_ROLLING_STEPS} steps")


def band(ax: Axes, run: Run, name: str, color: str) -> None:
    """Confidence band of an evaluation metric, where both ends were logged."""
    low_steps, low = run.series(f"{name}_low")
    high_steps, high = run.series(f"{name}_high")
    common = np.intersect1d(low_steps, high_steps)
    if len(common):
        ax.fill_between(
            common,
            low[np.isin(low_steps, common)],
            high[np.isin(high_steps, common)],
            color=color,
            alpha=0.18,
            lw=0,
        )


def percent_axis(ax: Axes) -> None:
    """0 to 100 %."""
    ax.set_ylim(-0.02, 1.08)  # room above 100 % for the horizon labels
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
