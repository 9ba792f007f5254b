"""Figures of a run, made from metrics.jsonl alone.

One PNG per question, and summary.png with the six that say most. A series the run does not
have is left out, a figure without any series is not made. The same metrics give the same bytes.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
from absl import logging
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.metrics import read_metrics
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.viewer.series import Run, horizon_stages, rolling_mean, time_shares

# Okabe and Ito's palette, told apart with any colour vision (https://jfly.uni-koeln.de/color/).
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PURPLE, _SKY, _YELLOW, _BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
_PALETTE = (_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, _BLACK, _YELLOW)
_STYLE: Mapping[str, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
}
_DPI = 150
_ROLLING_STEPS = 10
_FEW_POINTS = 30  # a curve of at most this many points shows them
_MAX_STAGES = 12  # an adaptive horizon changes too often to be drawn as background
_MAX_GROUP_LINES = 6  # more groups than this become a map


def _shade_horizon(ax: Axes, run: Run) -> None:
    """Background bands, darker for longer horizons, each with its turn limit."""
    stages = horizon_stages(*run.series("horizon/turns"))
    if not 1 < len(stages) <= _MAX_STAGES:
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


def _line(ax: Axes, run: Run, name: str, label: str, color: str, **style: Any) -> bool:
    """Draws one metric; False if the run does not have it."""
    steps, values = run.series(name)
    if not len(steps):
        return False
    marker = "o" if len(steps) <= _FEW_POINTS else ""
    ax.plot(steps, values, label=label, color=color, marker=marker, **style)
    return True


def _smooth_line(ax: Axes, run: Run, name: str, label: str, color: str) -> None:
    """The values faintly and their rolling mean on top."""
    steps, values = run.series(name)
    if not len(steps):
        return
    if len(steps) <= _ROLLING_STEPS:
        _line(ax, run, name, label, color)
        return
    ax.plot(steps, values, color=color, alpha=0.3, lw=0.9)
    mean = rolling_mean(values, _ROLLING_STEPS)
    ax.plot(steps, mean, color=color, label=f"{label}, mean of {_ROLLING_STEPS} steps")


def _band(ax: Axes, run: Run, name: str, color: str) -> None:
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


def _success(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _smooth_line(ax, run, "rollout/success", "training", _BLUE)
    for name, label, color in (
        ("eval/success", "evaluation, sampled", _ORANGE),
        ("eval/success_greedy", "evaluation, greedy", _RED),
    ):
        _band(ax, run, name, color)
        _line(ax, run, name, label, color)
    _percent_axis(ax)


def _percent_axis(ax: Axes) -> None:
    ax.set_ylim(-0.02, 1.08)  # room above 100 % for the horizon labels
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _reward(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _smooth_line(ax, run, "rollout/reward_mean", "training", _BLUE)
    _line(ax, run, "eval/reward", "evaluation, sampled", _ORANGE)
    _line(ax, run, "eval/reward_greedy", "evaluation, greedy", _RED)


def _turns(ax: Axes, run: Run) -> None:
    _smooth_line(ax, run, "rollout/turns_mean", "turns used", _BLUE)
    _line(ax, run, "eval/turns_mean", "evaluation, sampled", _ORANGE)
    _line(ax, run, "eval/turns_mean_greedy", "evaluation, greedy", _RED)
    steps, turns = run.series("horizon/turns")
    ax.step(steps, turns, where="mid", color=_BLACK, lw=1.2, ls="--", label="turn limit")
    ax.set_ylim(bottom=0)


def _lines(*curves: tuple[str, str], positive_log: bool = False) -> Callable[[Axes, Run], None]:
    """A plain panel: (metric, label) each, on a log axis if asked and all values are positive."""

    def draw(ax: Axes, run: Run) -> None:
        for color, (name, label) in zip(_PALETTE, curves, strict=False):
            _line(ax, run, name, label, color)
        values = np.concatenate([run.series(name)[1] for name, _ in curves])
        if positive_log and np.all(values > 0):
            ax.set_yscale("log")

    return draw


def _entropy(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _line(ax, run, "policy/entropy", "entropy", _PURPLE)
    ax.set_ylim(bottom=0)


_TIME_COLORS = {
    "prefill": _YELLOW,
    "decode": _ORANGE,
    "extend": "#F5C76B",
    "waiting for environments": _RED,
    "rollout, other": "#B8860B",
    "scoring": _PURPLE,
    "update": _BLUE,
    "weights to sampler": _SKY,
    "data": "#7F7F7F",
    "other": "#DDDDDD",
    "evaluation": _GREEN,
    "checkpoint": _BLACK,
}


def _time(ax: Axes, run: Run) -> None:
    steps, shares = time_shares(run)
    shown = {label: values for label, values in shares.items() if values.max() > 0.002}
    if len(steps) == 1:  # an area needs two ends
        steps = np.array([steps[0] - 0.5, steps[0] + 0.5])
        shown = {label: np.repeat(values, 2) for label, values in shown.items()}
    ax.stackplot(
        steps,
        list(shown.values()),
        labels=list(shown),
        colors=[_TIME_COLORS[label] for label in shown],
        edgecolor="white",
        linewidth=0.3,
    )
    ax.set_ylim(0, 1)
    ax.set_xlim(steps[0], steps[-1])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _group_metric(run: Run) -> str:
    return "eval/success_greedy" if run.groups("eval/success_greedy") else "eval/success"


def _groups(ax: Axes, run: Run) -> None:
    """Success per group: a line each, or a map of groups by steps if there are many."""
    name = _group_metric(run)
    groups = run.groups(name)
    if len(groups) <= _MAX_GROUP_LINES:
        for color, group in zip(_PALETTE, groups, strict=False):
            _line(ax, run, f"{name}/{group}", group, color)
        _percent_axis(ax)
        return
    columns = [run.series(f"{name}/{group}") for group in groups]
    steps = np.unique(np.concatenate([steps for steps, _ in columns]))
    table = np.full((len(groups), len(steps)), np.nan)
    for row, (where, values) in zip(table, columns, strict=True):
        row[np.searchsorted(steps, where)] = values
    mesh = ax.pcolormesh(
        np.arange(len(steps) + 1), np.arange(len(groups) + 1), table, cmap="cividis", vmin=0, vmax=1
    )
    ax.figure.colorbar(mesh, ax=ax, format=PercentFormatter(1.0, decimals=0))
    every = max(1, len(steps) // 8)
    ax.set_xticks(np.arange(len(steps))[::every] + 0.5, [f"{step:g}" for step in steps[::every]])
    ax.set_yticks(
        np.arange(len(groups)) + 0.5, groups, fontsize=max(3.5, min(8, 150 / len(groups)))
    )
    ax.invert_yaxis()
    ax.grid(False)


@dataclasses.dataclass(frozen=True)
class _Panel:
    """One figure: made if the run has any of `needs` (names of `metrics.METRICS`).

    `unit` labels the vertical axis.
    """

    file: str
    title: str
    unit: str
    needs: tuple[str, ...]
    draw: Callable[[Axes, Run], None]

    def is_possible(self, run: Run) -> bool:
        return any(
            bool(run.groups(name.removesuffix("/<group>")))
            if name.endswith("/<group>")
            else run.has(name)
            for name in self.needs
        )


# In the order in which summary.png takes them.
_PANELS = (
    _Panel(
        "success",
        "Solved tasks",
        "share of episodes",
        ("rollout/success", "eval/success", "eval/success_greedy"),
        _success,
    ),
    _Panel("turns", "Turns and horizon", "turns per episode", ("rollout/turns_mean",), _turns),
    _Panel(
        "sft_loss",
        "Loss",
        "nats per token",
        ("sft/loss", "eval/loss"),
        _lines(("sft/loss", "training"), ("eval/loss", "held out")),
    ),
    _Panel(
        "sft_accuracy",
        "Token accuracy",
        "share of tokens",
        ("sft/accuracy",),
        _lines(("sft/accuracy", "most likely token is right")),
    ),
    _Panel("dpo_loss", "Preference loss", "nats", ("dpo/loss",), _lines(("dpo/loss", "training"))),
    _Panel(
        "dpo_margin",
        "Implicit reward margin",
        "nats",
        ("dpo/margin",),
        _lines(("dpo/margin", "chosen minus rejected")),
    ),
    _Panel(
        "reward", "Reward", "reward per episode", ("rollout/reward_mean", "eval/reward"), _reward
    ),
    _Panel("entropy", "Policy entropy", "nats per token", ("policy/entropy",), _entropy),
    _Panel(
        "kl",
        "Divergence",
        "nats per token",
        ("policy/kl_k3", "policy/approx_kl"),
        _lines(("policy/kl_k3", "from the reference (k3)"), ("policy/approx_kl", "of the update")),
    ),
    _Panel("time", "Where the time goes", "share of a step", ("time/iteration_s",), _time),
    _Panel(
        "grad_norm",
        "Gradient norm",
        "norm before clipping",
        ("policy/grad_norm",),
        _lines(("policy/grad_norm", "policy"), ("critic/grad_norm", "critic"), positive_log=True),
    ),
    _Panel(
        "logprob_gap",
        "Sampler against learner",
        "log-probability gap, nats",
        ("policy/logprob_gap_mean", "policy/logprob_gap_max"),
        _lines(
            ("policy/logprob_gap_mean", "mean"),
            ("policy/logprob_gap_max", "largest"),
            positive_log=True,
        ),
    ),
    _Panel(
        "clip",
        "Clipped tokens",
        "share of action tokens",
        ("policy/clip_fraction",),
        _lines(("policy/clip_fraction", "ratio clipped")),
    ),
    _Panel(
        "throughput",
        "Throughput",
        "tokens per second",
        ("rate/decode_tokens_per_s", "rate/train_tokens_per_s"),
        _lines(("rate/decode_tokens_per_s", "decoding"), ("rate/train_tokens_per_s", "training")),
    ),
    _Panel(
        "groups",
        "Solved tasks per group, evaluation",
        "share of episodes",
        ("eval/success/<group>", "eval/success_greedy/<group>"),
        _groups,
    ),
)


def _draw(panel: _Panel, ax: Axes, run: Run) -> None:
    """One panel with its title, labels and legend."""
    if panel.unit.startswith("share"):
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.draw(ax, run)
    ax.set_title(panel.title)
    ax.set_xlabel("optimiser step")
    if ax.collections and panel.draw is _groups and not ax.lines:
        ax.set_ylabel("")  # the map's rows carry their own names
    else:
        ax.set_ylabel(panel.unit)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    handles, labels = ax.get_legend_handles_labels()
    if len(handles) > 4:
        ax.legend(
            handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5
        )
    elif handles:
        ax.legend(loc="best")


def _save(figure: Figure, path: pathlib.Path) -> None:
    """Writes the PNG in one rename, without a date or version in it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    FigureCanvasAgg(figure)
    figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
    os.replace(temporary, path)


def write_plots(run_dir: str | os.PathLike) -> list[pathlib.Path]:
    """Draws every figure that the run's metrics allow into `plots/`.

    Returns:
      The files written; the last is summary.png.

    Raises:
      FileNotFoundError: there is no metrics.jsonl.
      ValueError: it has nothing that could be drawn.
    """
    folder = RunFolder(run_dir)
    run = Run(read_metrics(folder.metrics_path))
    panels = [panel for panel in _PANELS if panel.is_possible(run)]
    if not panels:
        raise ValueError(
            f"{folder.metrics_path} has {len(run.lines)} steps and none of the metrics that are "
            "plotted; wait until the first step is done"
        )
    folder.plots.mkdir(exist_ok=True)
    written = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's matplotlibrc must not change the figures
        matplotlib.rcParams.update(_STYLE)
        for panel in panels:
            figure = Figure(figsize=(6.4, 3.8), layout="constrained")
            _draw(panel, figure.add_subplot(), run)
            written.append(folder.plots / f"{panel.file}.png")
            _save(figure, written[-1])
        shown = panels[:6]
        columns = min(3, len(shown))
        rows = -(-len(shown) // columns)
        figure = Figure(figsize=(4.6 * columns, 3.2 * rows), layout="constrained")
        for i, panel in enumerate(shown, 1):
            _draw(panel, figure.add_subplot(rows, columns, i), run)
        written.append(folder.plots / "summary.png")
        _save(figure, written[-1])
    logging.info("%d figures written to %s", len(written), folder.plots)
    return written
