"""Figures of a run. Each figure shows a few related metrics; panels.toml is their table."""

import dataclasses
import itertools
import pathlib
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from agentgym_jax.telemetry.metrics import add_environment
from agentgym_jax.viewer.series import Run, horizon_stages, rolling_mean, visible_time_shares

# Okabe and Ito's palette, distinguishable with any colour vision
# (https://jfly.uni-koeln.de/color/).
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PURPLE, _SKY, _YELLOW, _BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
_PALETTE = (_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, _BLACK, _YELLOW)
TIME_COLORS = {
    "prefill": _YELLOW,
    "decode": _ORANGE,
    "waiting for environments": _RED,
    "rollout, other": "#B8860B",
    "scoring": _PURPLE,
    "update": _BLUE,
    "data": "#7F7F7F",
    "other": "#DDDDDD",
    "evaluation": _GREEN,
    "checkpoint": _BLACK,
}
_ROLLING_STEPS = 10
_FEW_POINTS = 30  # curves with at most this number of points have markers
_MAX_STAGES = 12  # with more stages, the horizon is not drawn in the background
_MAX_GROUP_LINES = 6  # with more groups, the figure is a heat map


@dataclasses.dataclass(frozen=True)
class Panel:
    """One figure, which is drawn if the run has any metric of `needs`."""

    file: str  # name of the file without its suffix
    title: str
    unit: str  # label of the vertical axis
    needs: tuple[str, ...]  # names in `metrics.METRICS`
    draw: Callable[[Axes, Run], None]


def _line(ax: Axes, run: Run, name: str, label: str, color: str, **style: Any) -> None:
    steps, values = run.series(name)
    if len(steps):
        marker = "o" if len(steps) <= _FEW_POINTS else ""
        ax.plot(steps, values, label=label, color=color, marker=marker, **style)


def _smooth_line(ax: Axes, run: Run, name: str, label: str, color: str) -> None:
    """Draws the values faintly, with their rolling mean on top of them."""
    steps, values = run.series(name)
    if len(steps) <= _ROLLING_STEPS:
        _line(ax, run, name, label, color)
        return
    ax.plot(steps, values, color=color, alpha=0.3, lw=0.9)
    mean = rolling_mean(values, _ROLLING_STEPS)
    ax.plot(steps, mean, color=color, label=f"{label}, mean of {_ROLLING_STEPS} steps")


def _turn_limit(ax: Axes, run: Run, name: str, label: str, color: str) -> None:
    ax.step(*run.series(name), where="mid", color=color, lw=1.2, ls="--", label=label)


def _intervals(ax: Axes, run: Run, name: str, color: str) -> None:
    """Draws the confidence interval of an evaluation metric at the steps that have both bounds.

    There is no band between two evaluations, because nothing was measured there.
    """
    low_steps, low = run.series(f"{name}_low")
    high_steps, high = run.series(f"{name}_high")
    common, at_low, at_high = np.intersect1d(low_steps, high_steps, return_indices=True)
    if len(common):
        ax.vlines(common, low[at_low], high[at_high], color=color, alpha=0.6, lw=1.4)


def _shade_horizon(ax: Axes, run: Run) -> None:
    """Draws a background band with its turn limit for each stage of the horizon.

    With several environments no bands are drawn, because the stages of the environments differ.
    """
    stages = horizon_stages(*run.series("horizon/turns"))
    if run.environments("horizon/turns") or not 1 < len(stages) <= _MAX_STAGES:
        return
    longest = max(turns for _, _, turns in stages)
    for first, last, turns in stages:
        ax.axvspan(first - 0.5, last + 0.5, color=_SKY, alpha=0.22 * turns / longest, lw=0)
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


def _percent_axis(ax: Axes) -> None:
    ax.set_ylim(-0.02, 1.08)  # room above 100 % for the horizon labels
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _success(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _smooth_line(ax, run, "rollout/success", _LABELS["rollout/success"], _BLUE)
    _intervals(ax, run, "eval/success", _ORANGE)
    _line(ax, run, "eval/success", _LABELS["eval/success"], _ORANGE)
    _intervals(ax, run, "eval/success_greedy", _RED)
    _line(ax, run, "eval/success_greedy", _LABELS["eval/success_greedy"], _RED)
    _percent_axis(ax)


def _turns(ax: Axes, run: Run) -> None:
    _smooth_line(ax, run, "rollout/turns_mean", _LABELS["rollout/turns_mean"], _BLUE)
    _line(ax, run, "eval/turns_mean", _LABELS["eval/turns_mean"], _ORANGE)
    _line(ax, run, "eval/turns_mean_greedy", _LABELS["eval/turns_mean_greedy"], _RED)
    if run.has("horizon/turns"):
        _turn_limit(ax, run, "horizon/turns", _LABELS["horizon/turns"], _BLACK)
    ax.set_ylim(bottom=0)


def _reward(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _smooth_line(ax, run, "rollout/reward_mean", _LABELS["rollout/reward_mean"], _BLUE)


def _entropy(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _line(ax, run, "policy/entropy", _LABELS["policy/entropy"], _PURPLE)
    ax.set_ylim(bottom=0)


def _time(ax: Axes, run: Run) -> None:
    steps, shares = visible_time_shares(run)
    if len(steps) == 1:  # a filled area needs two points
        steps = np.array([steps[0] - 0.5, steps[0] + 0.5])
        shares = {label: np.repeat(values, 2) for label, values in shares.items()}
    ax.stackplot(
        steps,
        list(shares.values()),
        labels=list(shares),
        colors=[TIME_COLORS[label] for label in shares],
        edgecolor="white",
        linewidth=0.3,
    )
    ax.set_ylim(0, 1)
    ax.set_xlim(steps[0], steps[-1])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _evaluation_metric(run: Run) -> str:
    return "eval/success_greedy" if run.has("eval/success_greedy") else "eval/success"


def _groups(ax: Axes, run: Run) -> None:
    """Draws a line per task group, or a heat map of groups and steps if there are many groups."""
    name = _evaluation_metric(run)
    groups = run.groups(name)
    if len(groups) <= _MAX_GROUP_LINES:
        for color, group in zip(_PALETTE, groups, strict=False):
            _line(ax, run, f"{name}/{group}", group, color)
        _percent_axis(ax)
        return
    columns = [run.series(f"{name}/{group}") for group in groups]
    steps = np.unique(np.concatenate([steps for steps, _ in columns]))
    table = np.full((len(groups), len(steps)), np.nan)
    for row, (at, values) in zip(table, columns, strict=True):
        row[np.searchsorted(steps, at)] = values
    mesh = ax.pcolormesh(table, cmap="cividis", vmin=0, vmax=1)
    ax.figure.colorbar(mesh, ax=ax, format=PercentFormatter(1.0, decimals=0))
    every = max(1, len(steps) // 8)
    ax.set_xticks(np.arange(len(steps))[::every] + 0.5, [f"{step:g}" for step in steps[::every]])
    font_size = max(3.5, min(8, 150 / len(groups)))
    ax.set_yticks(np.arange(len(groups)) + 0.5, groups, fontsize=font_size)
    ax.set_ylabel("")  # each row of the heat map has a label
    ax.invert_yaxis()
    ax.grid(False)


def _environments(ax: Axes, run: Run) -> None:
    """Draws training and evaluation (dotted) of every environment in the same colour."""
    metric = _evaluation_metric(run)
    names = {*run.environments("rollout/success"), *run.environments(metric)}
    for color, name in zip(itertools.cycle(_PALETTE), sorted(names), strict=False):
        _smooth_line(ax, run, add_environment("rollout/success", name), name, color)
        _line(ax, run, add_environment(metric, name), f"{name}, evaluation", color, ls=":")
    _percent_axis(ax)


def _environment_turns(ax: Axes, run: Run) -> None:
    names = run.environments("rollout/turns_mean")
    for color, name in zip(itertools.cycle(_PALETTE), names, strict=False):
        _smooth_line(ax, run, add_environment("rollout/turns_mean", name), name, color)
        _turn_limit(ax, run, add_environment("horizon/turns", name), f"{name}, limit", color)
    ax.set_ylim(bottom=0)


def _curves(names: Sequence[str], level: float | None, is_log: bool) -> Callable[[Axes, Run], None]:
    """Returns the function that draws one line per metric, and a horizontal line at `level`."""

    def draw(ax: Axes, run: Run) -> None:
        if level is not None:
            ax.axhline(level, color=_BLACK, lw=0.8, ls=":")
        for color, name in zip(_PALETTE, names, strict=False):
            _line(ax, run, name, _LABELS[name], color)
        values = np.concatenate([run.series(name)[1] for name in names])
        if is_log and np.all(values > 0):
            ax.set_yscale("log")

    return draw


_DRAWN = {
    "success": _success,
    "turns": _turns,
    "reward": _reward,
    "entropy": _entropy,
    "time": _time,
    "groups": _groups,
    "environments": _environments,
    "environment_turns": _environment_turns,
}


def _panel(
    file: str,
    *,
    title: str,
    unit: str,
    lines: Sequence[tuple[str, str]] = (),
    needs: Sequence[str] = (),
    draw: str = "",
    level: float | None = None,
    is_log: bool = False,
) -> Panel:
    """Returns the panel of a section of panels.toml, which describes the arguments."""
    names = tuple(name for name, _ in lines)
    drawn = _DRAWN[draw] if draw else _curves(names, level, is_log)
    return Panel(file, title, unit, tuple(needs) or names, drawn)


_SECTIONS = tomllib.loads(
    pathlib.Path(__file__).with_name("panels.toml").read_text(encoding="utf-8")
)
# Label of a metric in the legend of its panel.
_LABELS = {
    name: label for section in _SECTIONS.values() for name, label in section.get("lines", ())
}
PANELS = tuple(_panel(file, **section) for file, section in _SECTIONS.items())


def label_of(metric: str) -> str:
    """Returns the legend label of a metric in its panel: a phrase, a group or an environment."""
    if metric in _LABELS:
        return _LABELS[metric]
    area, *middle, name = metric.split("/")
    if not middle:
        return name.replace("_", " ")
    if middle[0] in ("success", "success_greedy"):  # eval/success/<group>
        return f"{name}, greedy" if middle[0].endswith("greedy") else name
    suffix = {"eval": ", evaluation", "horizon": ", limit"}.get(area, "")
    return f"{middle[0]}{suffix}"


def panels_of(run: Run) -> list[Panel]:
    """Returns the panels for which the run has data."""
    return [panel for panel in PANELS if any(run.expand(need) for need in panel.needs)]
