"""Draws curves.png from runs.csv.

PYTHONPATH=.:envs python experiments/2026-11-27_qwen_learns/curves.py
"""

import csv
import pathlib

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.viewer.plots import figure_style, save_figure

HERE = pathlib.Path(__file__).parent
PANELS = {
    "suite_sampled": "Success on the suite's items, sampled",
    "suite_greedy": "Success on the suite's items, greedy",
    "informative_groups": "Informative groups of 16",
    "entropy": "Entropy, nats per token",
}
NAMES = {"babyai": "BabyAI", "textcraft": "TextCraft"}


def main() -> None:
    """Draws one panel per quantity with one line per run."""
    with open(HERE / "runs.csv") as file:
        rows = list(csv.DictReader(file))
    with figure_style():
        figure = Figure(figsize=(10, 6), layout="constrained")
        for i, (key, title) in enumerate(PANELS.items(), 1):
            ax = figure.add_subplot(2, 2, i)
            for number, name in enumerate(NAMES):
                for seed, style in (("0", "-"), ("1", "--")):
                    run = [r for r in rows if r["run"] == name and r["seed"] == seed and r[key]]
                    steps = [int(r["step"]) for r in run]
                    values = [float(r[key]) for r in run]
                    label = f"{NAMES[name]}, seed {seed}"
                    ax.plot(steps, values, style, color=f"C{number}", label=label)
            ax.set(title=title, xlabel="step")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            if key.startswith("suite"):
                ax.set_ylim(0, 1)
                ax.yaxis.set_major_formatter(PercentFormatter(1.0))
            else:
                ax.set_ylim(bottom=0)
        figure.axes[0].legend(fontsize="small")
        save_figure(figure, HERE / "curves.png")


if __name__ == "__main__":
    main()
