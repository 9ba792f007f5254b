"""Draws curves.png and prints the tables of this experiment from seedN.jsonl.

PYTHONPATH=.:envs python experiments/2026-11-25_qwen_babyai/curves.py
"""

import pathlib

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.plots import figure_style, save_figure

HERE = pathlib.Path(__file__).parent
TITLES = {"3e-4 constant": "learning rate 3e-4", "2e-4 falling": "learning rate 2e-4, falling"}
SEEDS = {"3e-4 constant": (0, 1), "2e-4 falling": (2, 3)}
LEVELS = ("GoToRedBallNoDists", "GoToObjS6", "OpenRedDoor")
MODES = {"sampled": "", "greedy": "_greedy"}


def load(seed: int) -> list[dict]:
    """Returns the metrics of a run, or nothing if it has not been recorded."""
    path = HERE / f"seed{seed}.jsonl"
    return read_metrics(path) if path.exists() else []


def minutes(lines: list[dict]) -> float:
    """Returns the time of all steps and evaluations."""
    keys = ("time/iteration_s", "time/eval_s", "time/checkpoint_s")
    return sum(line.get(key, 0.0) for line in lines for key in keys) / 60


def print_tables() -> None:
    """Prints success per level, and the cost of each run."""
    print(f"| rate | seed | step | mode | all | {' | '.join(LEVELS)} |")
    print("|" + "---|" * (5 + len(LEVELS)))
    for rate, seeds in SEEDS.items():
        for seed in seeds:
            for mode, suffix in MODES.items():
                for line in (x for x in load(seed) if "eval/success" in x):
                    keys = [f"eval/success{suffix}"]
                    keys += [f"eval/success{suffix}/{level}" for level in LEVELS]
                    values = " | ".join(f"{100 * line[key]:.1f}" for key in keys)
                    print(f"| {rate} | {seed} | {line['step']} | {mode} | {values} |")
    print("\n| seed | updates | episodes | sampled tokens | minutes | memory of the host, GiB |")
    print("|---|---|---|---|---|---|")
    for seed in sorted(seed for seeds in SEEDS.values() for seed in seeds):
        lines = load(seed)
        if lines:
            updates = sum("policy/grad_norm" in line for line in lines)
            episodes = sum(line.get("rollout/episodes", 0) for line in lines)
            tokens = sum(line.get("rollout/sampled_tokens", 0) for line in lines)
            memory = max(line.get("system/host_memory_gib", 0) for line in lines)
            print(
                f"| {seed} | {updates} | {episodes:.0f} | {tokens:.0f} | {minutes(lines):.0f} | "
                f"{memory:.1f} |"
            )


def draw() -> None:
    """Draws the success of training and held-out episodes, one panel per learning rate."""
    with figure_style():
        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        for axis, (rate, seeds) in zip(
            figure.subplots(1, 2, sharey=True), SEEDS.items(), strict=True
        ):
            for colour, seed in zip(("C0", "C1"), seeds, strict=True):
                lines = load(seed)
                train = [(x["step"], x["rollout/success"]) for x in lines if "rollout/success" in x]
                if train:
                    label = f"seed {seed}: training, sampled"
                    axis.plot(*zip(*train, strict=True), color=colour, alpha=0.5, label=label)
                for (mode, suffix), style in zip(MODES.items(), ("o-", "s--"), strict=True):
                    key = f"eval/success{suffix}"
                    held_out = [(x["step"], x[key]) for x in lines if key in x]
                    if held_out:
                        label = f"seed {seed}: held out, {mode}"
                        axis.plot(*zip(*held_out, strict=True), style, color=colour, label=label)
            axis.set_title(TITLES[rate])
            axis.set_xlabel("step")
            axis.set_ylim(0, 1.03)
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            if axis.lines:
                axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=7)
        save_figure(figure, HERE / "curves.png")


if __name__ == "__main__":
    print_tables()
    draw()
