"""Figures of a run, made only from metrics.jsonl; identical metrics give identical bytes.

There is one PNG per panel, and summary.png with the six most important panels.
"""

import contextlib
import os
import pathlib

import matplotlib.style
from absl import logging
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.runs.atomic_files import replacing
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.panels import Panel, panels_of
from agentgym_jax.viewer.series import Run

_STYLE = pathlib.Path(__file__).with_name("figures.mplstyle")
_DPI = 150


def _draw(panel: Panel, ax: Axes, run: Run) -> None:
    ax.set_title(panel.title)
    ax.set_xlabel("optimiser step")
    ax.set_ylabel(panel.unit)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if panel.unit.startswith("share"):
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.draw(ax, run)
    handles, labels = ax.get_legend_handles_labels()
    if len(handles) > 4:
        ax.legend(
            handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5
        )
    elif handles:
        ax.legend(loc="best")


def figure_style() -> contextlib.AbstractContextManager[None]:
    """Draws the figures of a block in the project's style and ignores the user's matplotlibrc."""
    return matplotlib.style.context(_STYLE, after_reset=True)


def save_figure(figure: Figure, path: pathlib.Path) -> None:
    """Writes the PNG atomically, without a date or version in its metadata."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})


def write_plots(run_dir: str | os.PathLike) -> list[pathlib.Path]:
    """Draws every figure for which the run has metrics into `plots/`; returns the paths.

    Raises:
      FileNotFoundError: The folder has no metrics.jsonl.
      ValueError: The metrics have no values to draw.
    """
    folder = RunFolder(run_dir)
    run = Run(read_metrics(folder.metrics_path))
    panels = panels_of(run)
    if not panels:
        raise ValueError(
            f"{folder.metrics_path} has {len(run.lines)} steps and none of the metrics that are "
            "plotted; wait until the first step is done"
        )
    folder.plots.mkdir(exist_ok=True)
    # name, panels, and size of a panel in inches
    figures = [(panel.file, [panel], 6.4, 3.8) for panel in panels]
    figures.append(("summary", panels[:6], 4.6, 3.2))
    written = []
    with figure_style():
        for name, shown, width, height in figures:
            columns = min(3, len(shown))
            rows = -(-len(shown) // columns)
            figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
            for i, panel in enumerate(shown, 1):
                _draw(panel, figure.add_subplot(rows, columns, i), run)
            written.append(folder.plots / f"{name}.png")
            save_figure(figure, written[-1])
    logging.info("%d figures written to %s", len(written), folder.plots)
    return written
