"""Figure of a sweep: learning curves of all variants."""

import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.sweeps.sweep_results import RunResult, mean_curve
from agentgym_jax.telemetry.metrics import lookup
from agentgym_jax.viewer.plots import figure_style, save_figure

_LINES = ("-", "--", ":", "-.")  # every ten variants, the colours repeat with another line


def write_curves(
    path: pathlib.Path,
    metric: str,
    curves: Mapping[str, Sequence[RunResult]],
    tokens: float | None = None,
) -> bool:
    """Draws the mean curve of each variant with the range over its seeds.

    `curves` has the results by name of the variant. With `tokens`, the curves are functions of the
    training tokens up to this number. Returns False, without a file, if no variant has two points.
    """
    drawn = {name: mean_curve(results, tokens) for name, results in curves.items()}
    drawn = {name: curve for name, curve in drawn.items() if len(curve[0]) > 1}
    if not drawn:
        return False
    with figure_style():
        figure = Figure(figsize=(8.0, 4.2 + 0.15 * len(drawn)), layout="constrained")
        axis = figure.add_subplot()
        for i, (name, (steps, mean, low, high)) in enumerate(drawn.items()):
            colour = f"C{i % 10}"
            marker = "o" if len(steps) < 20 else None
            style = _LINES[i // 10 % len(_LINES)]
            axis.plot(steps, mean, style, color=colour, label=name, marker=marker)
            axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.set_title(metric)
        axis.set_xlabel("optimiser step" if tokens is None else "training tokens")
        unit = lookup(metric).unit
        axis.set_ylabel("" if unit == "1" else unit)
        if unit == "fraction":
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside lower center", ncols=2)
        path.parent.mkdir(exist_ok=True)
        save_figure(figure, path)
    return True
