"""Figures of several results: success by environment, and both test-time scaling curves."""

import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.evaluation.compare import Result

_DPI = 120
_PANEL = (4.6, 3.4)  # inches
Colours = Mapping[str, str]  # by player


def write_plots(results: Sequence[Result], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws what the results allow; a figure without data is not made. A player has one colour in all.

    Args:
      results: to be drawn together.
      folder: made if it does not exist.

    Returns:
      The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    colours = {result.name: f"C{i % 10}" for i, result in enumerate(results)}
    written = [_success(results, colours, folder / "success.png")]
    written.append(_turn_budgets(results, colours, folder / "turn_budgets.png"))
    written.append(_sample_counts(results, colours, folder / "samples.png"))
    return [path for path in written if path is not None]


def _environments(results: Sequence[Result]) -> list[str]:
    return sorted({name for r in results for name in r.document["environments"]})


def _success(
    results: Sequence[Result], colours: Colours, path: pathlib.Path
) -> pathlib.Path | None:
    names = _environments(results)
    figure, axes = _figure(1, width=1.2 + 1.6 * len(names))
    axis = axes[0]
    width = 0.8 / len(results)
    for i, result in enumerate(results):
        rows = result.document["environments"]
        at = [j for j, name in enumerate(names) if name in rows and _has(rows[name])]
        if not at:
            continue
        values = [rows[names[j]]["success"] for j in at]
        ends = [rows[names[j]]["success_interval"] for j in at]
        below = [max(0.0, v - low) for v, (low, _) in zip(values, ends, strict=True)]
        above = [max(0.0, high - v) for v, (_, high) in zip(values, ends, strict=True)]
        places = [j + (i - (len(results) - 1) / 2) * width for j in at]
        colour, ends = colours[result.name], [below, above]
        axis.bar(places, values, width, yerr=ends, capsize=2, color=colour, label=result.name)
    axis.set_xticks(range(len(names)), names)
    axis.set_title("success, 95% intervals")
    return _save(figure, axes, path)


def _has(row) -> bool:
    return row["success"] is not None


def _turn_budgets(
    results: Sequence[Result], colours: Colours, path: pathlib.Path
) -> pathlib.Path | None:
    """One panel an environment; results whose agent was told its budget have no curve."""
    having = [r for r in results if "turn_budgets" in r.document and r.document["turn_budgets"]]
    names = sorted({name for r in having for name in r.document["turn_budgets"]})
    if not names:
        return None
    figure, axes = _figure(len(names))
    for axis, name in zip(axes, names, strict=True):
        for result in having:
            curves = result.document["turn_budgets"]
            if name not in curves or not curves[name]:
                continue
            turns = [row["turns"] for row in curves[name]]
            ends = [row["success_interval"] for row in curves[name]]
            success = [row["success"] for row in curves[name]]
            axis.plot(turns, success, color=colours[result.name], label=result.name)
            axis.fill_between(
                turns,
                [low for low, _ in ends],
                [high for _, high in ends],
                color=colours[result.name],
                alpha=0.15,
                linewidth=0,
            )
        axis.set_title(f"{name}: success within a turn limit")
        axis.set_xlabel("turn limit")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _save(figure, axes, path)


def _sample_counts(
    results: Sequence[Result], colours: Colours, path: pathlib.Path
) -> pathlib.Path | None:
    """One panel an environment; only results with more than one sample a task have a curve."""
    curves = {
        (result.name, name): curve
        for result in results
        if "sample_counts" in result.document
        for name, curve in result.document["sample_counts"].items()
        if name != "all" and len(curve) > 1
    }
    names = sorted({name for _, name in curves})
    if not names:
        return None
    figure, axes = _figure(len(names))
    for axis, name in zip(axes, names, strict=True):
        for (model, environment), curve in curves.items():
            if environment != name:
                continue
            ks = [row["k"] for row in curve]
            for estimator, words, style in (
                ("pass_at_k", "pass@k", "o-"),
                ("majority_at_k", "majority of k", "--"),
            ):
                values = [row[estimator] for row in curve]
                axis.plot(ks, values, style, color=colours[model], label=f"{model}: {words}")
        axis.set_title(f"{name}: samples of a task")
        axis.set_xlabel("samples k")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _save(figure, axes, path)


def _figure(panels: int, width: float = 0.0) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(max(width, _PANEL[0] * panels), _PANEL[1]), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _save(figure: Figure, axes: Sequence[Axes], path: pathlib.Path) -> pathlib.Path:
    for axis in axes:
        axis.set_ylim(0.0, 1.02)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#E6E6E6")
        axis.set_axisbelow(True)
    # One for all panels: a player may be missing in any of them.
    known = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if known:
        figure.legend(known.values(), known, loc="outside lower center", fontsize=7, frameon=False)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return path
