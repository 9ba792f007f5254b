"""Figures of several results: success by environment, turn limit and number of samples."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.evaluation.compare import Result
from agentgym_jax.runs.atomic_files import replacing

_DPI = 120
_PANEL = (4.6, 3.4)  # inches
Colours = Mapping[str, str]  # colour of each result by its name
# points of the curves in an entry of scores.json, by environment and by name of the result
Curves = dict[str, dict[str, Sequence[Mapping[str, Any]]]]


def write_plots(results: Sequence[Result], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws the figures for which the results have data, and returns the paths of the files.

    A result has the same colour in all figures. The folder is created if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    colours = {result.name: f"C{i % 10}" for i, result in enumerate(results)}
    written = [_plot_success(results, colours, folder / "success.png")]
    if budgets := _curves(results, "turn_budgets", min_points=1):
        written.append(_plot_turn_budgets(budgets, colours, folder / "turn_budgets.png"))
    if counts := _curves(results, "sample_counts", min_points=2):
        written.append(_plot_sample_counts(counts, colours, folder / "samples.png"))
    return written


def _curves(results: Sequence[Result], entry: str, *, min_points: int) -> Curves:
    curves: Curves = {}
    for result in results:
        for name, curve in (result.document.get(entry) or {}).items():
            if name != "all" and len(curve) >= min_points:
                curves.setdefault(name, {})[result.name] = curve
    return dict(sorted(curves.items()))


def _plot_success(results: Sequence[Result], colours: Colours, path: pathlib.Path) -> pathlib.Path:
    names = sorted({name for r in results for name in r.document["environments"]})
    figure, axes = _figure(1, width=1.2 + 1.6 * len(names))
    width = 0.8 / len(results)
    for i, result in enumerate(results):
        rows = result.document["environments"].items()
        known = [(name, row) for name, row in rows if row["success"] is not None]
        if not known:
            continue
        values = np.array([row["success"] for _, row in known])
        low, high = np.transpose([row["success_interval"] for _, row in known])
        axes[0].bar(
            [names.index(name) + (i - (len(results) - 1) / 2) * width for name, _ in known],
            values,
            width,
            yerr=np.maximum(0.0, [values - low, high - values]),
            capsize=2,
            color=colours[result.name],
            label=result.name,
        )
    axes[0].set_xticks(range(len(names)), names)
    axes[0].set_title("success, 95% intervals")
    return _save(figure, axes, path)


def _plot_turn_budgets(curves: Curves, colours: Colours, path: pathlib.Path) -> pathlib.Path:
    figure, axes = _figure(len(curves))
    for axis, (environment, by_result) in zip(axes, curves.items(), strict=True):
        for name, curve in by_result.items():
            turns = [row["turns"] for row in curve]
            low, high = zip(*(row["success_interval"] for row in curve), strict=True)
            success = [row["success"] for row in curve]
            axis.plot(turns, success, color=colours[name], label=name)
            axis.fill_between(turns, low, high, color=colours[name], alpha=0.15, linewidth=0)
        _label(axis, f"{environment}: success within a turn limit", "turn limit")
    return _save(figure, axes, path)


def _plot_sample_counts(curves: Curves, colours: Colours, path: pathlib.Path) -> pathlib.Path:
    estimators = (("pass_at_k", "pass@k", "o-"), ("majority_at_k", "majority of k", "--"))
    figure, axes = _figure(len(curves))
    for axis, (environment, by_result) in zip(axes, curves.items(), strict=True):
        for name, curve in by_result.items():
            ks = [row["k"] for row in curve]
            for estimator, words, style in estimators:
                values = [row[estimator] for row in curve]
                axis.plot(ks, values, style, color=colours[name], label=f"{name}: {words}")
        _label(axis, f"{environment}: samples of a task", "samples k")
    return _save(figure, axes, path)


def _label(axis: Axes, title: str, x: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(x)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _figure(panels: int, width: float = 0.0) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(max(width, _PANEL[0] * panels), _PANEL[1]), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _save(figure: Figure, axes: Sequence[Axes], path: pathlib.Path) -> pathlib.Path:
    for axis in axes:
        axis.set_ylim(0.0, 1.02)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#E6E6E6")
        axis.set_axisbelow(True)
    # The panels share one legend, because a result may lack curves in some of the panels.
    known = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if known:
        figure.legend(known.values(), known, loc="outside lower center", fontsize=7, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
    return path
