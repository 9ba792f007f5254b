"""Draws curves.png and prints the tables of this experiment from seedN.jsonl.

PYTHONPATH=.:envs python experiments/2026-11-25_qwen_search/curves.py
"""

import pathlib

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.plots import figure_style, save_figure

HERE = pathlib.Path(__file__).parent
SEEDS = tuple(sorted(int(path.stem.removeprefix("seed")) for path in HERE.glob("seed*.jsonl")))
PENALTY = {0: "0", 1: "0.1", 2: "0.1"}  # rollout.failed_turn_penalty of the run
SUCCESS = {"sampled": "eval/success", "greedy": "eval/success_greedy"}


def load(seed):
    """Returns the metrics of a run."""
    return read_metrics(HERE / f"seed{seed}.jsonl")


def print_tables():
    """Prints the success on the held-out questions, and the cost of each run."""
    print(
        "| penalty | seed | step | sampled | greedy | turns, sampled |\n|---|---|---|---|---|---|"
    )
    for seed in SEEDS:
        for line in (x for x in load(seed) if "eval/success" in x):
            values = [f"{100 * line[key]:.1f}" for key in SUCCESS.values()]
            print(
                f"| {PENALTY[seed]} | {seed} | {line['step']} | {' | '.join(values)} "
                f"| {line['eval/turns_mean']:.1f} |"
            )
    print("\n| seed | updates | episodes | sampled tokens | minutes | memory of the host, GiB |")
    print("|---|---|---|---|---|---|")
    for seed in SEEDS:
        lines = load(seed)
        times = ("time/iteration_s", "time/eval_s", "time/checkpoint_s")
        minutes = sum(line.get(key, 0.0) for line in lines for key in times) / 60
        updates = sum("policy/grad_norm" in line for line in lines)
        episodes = sum(line.get("rollout/episodes", 0) for line in lines)
        tokens = sum(line.get("rollout/sampled_tokens", 0) for line in lines)
        memory = max(line.get("system/host_memory_gib", 0) for line in lines)
        print(
            f"| {seed} | {updates} | {episodes:.0f} | {tokens:.0f} | {minutes:.0f} | {memory:.1f} |"
        )


def draw():
    """Draws the success and the turns of the training and held-out episodes."""
    with figure_style():
        figure = Figure(figsize=(7.5, 3.2), layout="constrained")
        success, turns = figure.subplots(1, 2)
        for seed in SEEDS:
            lines, colour = load(seed), f"C{seed}"
            curves = [("rollout/success", "-", 0.5)] + [
                (key, style, 1.0)
                for key, style in zip(SUCCESS.values(), ("o-", "s--"), strict=True)
            ]
            for key, style, alpha in curves:
                points = [(x["step"], x[key]) for x in lines if key in x]
                success.plot(*zip(*points, strict=True), style, color=colour, alpha=alpha)
            points = [
                (x["step"], x["rollout/turns_mean"]) for x in lines if "rollout/turns_mean" in x
            ]
            label = f"seed {seed}, penalty {PENALTY[seed]}"
            turns.plot(*zip(*points, strict=True), color=colour, label=label)
        success.set_ylabel("success")
        success.set_ylim(0, 1.03)
        success.yaxis.set_major_formatter(PercentFormatter(1.0))
        turns.set_ylabel("turns of a training episode")
        turns.legend(fontsize=7)
        for axis in (success, turns):
            axis.set_xlabel("step")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        save_figure(figure, HERE / "curves.png")


if __name__ == "__main__":
    print_tables()
    draw()
