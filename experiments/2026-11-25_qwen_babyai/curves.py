"""Draws curves.png and prints the tables of this experiment from seedN.jsonl.

PYTHONPATH=.:envs python experiments/2026-11-25_qwen_babyai/curves.py
"""

import pathlib

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.plots import figure_style, save_figure

HERE = pathlib.Path(__file__).parent
FINAL_SEEDS = (3, 4)
# Tuning seeds by learning rate; their task lists shared worlds.
TUNING_SEEDS = {"3e-4, constant": (0, 1), "2e-4, falling": (2,)}
LEVELS = ("GoToRedBallNoDists", "GoToObjS6", "OpenRedDoor")
MODES = {"sampled": "", "greedy": "_greedy"}


def load(seed: int) -> list[dict]:
    """Returns the metrics of a run."""
    return read_metrics(HERE / f"seed{seed}.jsonl")


def minutes(lines: list[dict]) -> float:
    """Returns the time of all steps and evaluations."""
    keys = ("time/iteration_s", "time/eval_s", "time/checkpoint_s")
    return sum(line.get(key, 0.0) for line in lines for key in keys) / 60


def print_tables() -> None:
    """Prints success per level, and the cost of each run."""
    runs = [("2e-4, falling", seed) for seed in FINAL_SEEDS]
    runs += [(rate, seed) for rate, seeds in TUNING_SEEDS.items() for seed in seeds]
    print(f"| rate | seed | step | mode | all | {' | '.join(LEVELS)} |")
    print("|" + "---|" * (5 + len(LEVELS)))
    for rate, seed in runs:
        for mode, suffix in MODES.items():
            for line in (x for x in load(seed) if "eval/success" in x):
                keys = [f"eval/success{suffix}"]
                keys += [f"eval/success{suffix}/{level}" for level in LEVELS]
                values = " | ".join(f"{100 * line[key]:.1f}" for key in keys)
                print(f"| {rate} | {seed} | {line['step']} | {mode} | {values} |")
    print("\n| seed | updates | episodes | sampled tokens | minutes | memory of the host, GiB |")
    print("|---|---|---|---|---|---|")
    for _, seed in runs:
        lines = load(seed)
        updates = sum("policy/grad_norm" in line for line in lines)
        episodes = sum(line.get("rollout/episodes", 0) for line in lines)
        tokens = sum(line.get("rollout/sampled_tokens", 0) for line in lines)
        memory = max(line.get("system/host_memory_gib", 0) for line in lines)
        print(
            f"| {seed} | {updates} | {episodes:.0f} | {tokens:.0f} | {minutes(lines):.0f} | "
            f"{memory:.1f} |"
        )


def draw() -> None:
    """Draws the success of training and held-out episodes of the final seeds."""
    with figure_style():
        figure = Figure(figsize=(7.5, 4.0), layout="constrained")
        axis = figure.subplots()
        for seed in FINAL_SEEDS:
            lines, colour = load(seed), f"C{seed}"
            curves = [("training, sampled", "rollout/success", "-", 0.5)]
            curves += [
                (f"held out, {mode}", f"eval/success{suffix}", style, 1.0)
                for (mode, suffix), style in zip(MODES.items(), ("o-", "s--"), strict=True)
            ]
            for name, key, style, alpha in curves:
                points = [(x["step"], x[key]) for x in lines if key in x]
                label = f"seed {seed}: {name}"
                axis.plot(*zip(*points, strict=True), style, color=colour, alpha=alpha, label=label)
        axis.set_xlabel("step")
        axis.set_ylim(0, 1.03)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        save_figure(figure, HERE / "curves.png")


if __name__ == "__main__":
    print_tables()
    draw()
