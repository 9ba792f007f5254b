"""Figures of several results: success by environment, and both test-time scaling curves."""

import pathlib
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.evaluation.compare import Result

_DPI = 120
_PANEL = (4.6, 3.4)  # inches


def write_plots(results: Sequence[Result], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws what the results allow; a figure without data is not made.

    Args:
      results: to be drawn together.
      folder: made if it does not exist.

    Returns:
      The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [_success(results, folder / "success.png")]
    written.append(_turn_budgets(results, folder / "turn_budgets.png"))
    written.append(_sample_counts(results, folder / "samples.png"))
    return [path for path in written if path is not None]


def _environments(results: Sequence[Result]) -> list[str]:
    return sorted({name for r in results for name in r.document["environments"]})


def _success(results: Sequence[Result], path: pathlib.Path) -> pathlib.Path | None:
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
        axis.bar(places, values, width, yerr=[below, above], capsize=2, label=result.name)
    axis.set_xticks(range(len(names)), names)
    axis.set_title("success, 95% intervals")
    return _save(figure, axes, path)


def _has(row) -> bool:
    return row["success"] is not None


def _turn_budgets(results: Sequence[Result], path: pathlib.Path) -> pathlib.Path | None:
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
            line = axis.plot(turns, [row["success"] for row in curves[name]], label=result.name)
            axis.fill_between(
                turns,
                [low for low, _ in ends],
                [high for _, high in ends],
                color=line[0].get_color(),
                alpha=0.15,
                linewidth=0,
            )
        axis.set_title(f"{name}: success within a turn limit")
        axis.set_xlabel("turn limit")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _save(figure, axes, path)


def _sample_counts(results: Sequence[Result], path: pathlib.Path) -> pathlib.Path | None:
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
            line = axis.plot(
                ks, [row["pass_at_k"] for row in curve], marker="o", label=f"{model}: pass@k"
            )
            axis.plot(
                ks,
                [row["majority_at_k"] for row in curve],
                linestyle="--",
                color=line[0].get_color(),
                label=f"{model}: majority of k",
            )
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
    axes[-1].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return path
