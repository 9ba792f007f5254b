"""The figures of a run, one question each, and the metrics that answer it."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from agentgym_jax.metrics import of_environment
from agentgym_jax.viewer.curves import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PALETTE,
    PURPLE,
    RED,
    YELLOW,
    band,
    line,
    percent_axis,
    shade_horizon,
    smooth_line,
)
from agentgym_jax.viewer.series import Run, time_shares

_MAX_GROUP_LINES = 6  # more groups than this become a map


def _success(ax: Axes, run: Run) -> None:
    shade_horizon(ax, run)
    smooth_line(ax, run, "rollout/success", "training", BLUE)
    for name, label, color in (
        ("eval/success", "evaluation, sampled", ORANGE),
        ("eval/success_greedy", "evaluation, greedy", RED),
    ):
        band(ax, run, name, color)
        line(ax, run, name, label, color)
    percent_axis(ax)


def _reward(ax: Axes, run: Run) -> None:
    shade_horizon(ax, run)
    smooth_line(ax, run, "rollout/reward_mean", "training", BLUE)


def _turns(ax: Axes, run: Run) -> None:
    smooth_line(ax, run, "rollout/turns_mean", "turns used", BLUE)
    line(ax, run, "eval/turns_mean", "evaluation, sampled", ORANGE)
    line(ax, run, "eval/turns_mean_greedy", "evaluation, greedy", RED)
    steps, turns = run.series("horizon/turns")
    if len(steps):
        ax.step(steps, turns, where="mid", color=BLACK, lw=1.2, ls="--", label="turn limit")
    ax.set_ylim(bottom=0)


def _lines(
    *curves: tuple[str, str], positive_log: bool = False, level: float | None = None
) -> Callable[[Axes, Run], None]:
    """A plain panel: (metric, label) each, on a log axis if asked and all values are positive.

    `level` is a value to compare with, such as what chance gives: a thin line.
    """

    def draw(ax: Axes, run: Run) -> None:
        if level is not None:
            ax.axhline(level, color=BLACK, lw=0.8, ls=":")
        for color, (name, label) in zip(PALETTE, curves, strict=False):
            line(ax, run, name, label, color)
        values = np.concatenate([run.series(name)[1] for name, _ in curves])
        if positive_log and np.all(values > 0):
            ax.set_yscale("log")

    return draw


def _entropy(ax: Axes, run: Run) -> None:
    shade_horizon(ax, run)
    line(ax, run, "policy/entropy", "entropy", PURPLE)
    ax.set_ylim(bottom=0)


TIME_COLORS = {
    "prefill": YELLOW,
    "decode": ORANGE,
    "waiting for environments": RED,
    "rollout, other": "#B8860B",
    "scoring": PURPLE,
    "update": BLUE,
    "data": "#7F7F7F",
    "other": "#DDDDDD",
    "evaluation": GREEN,
    "checkpoint": BLACK,
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
        colors=[TIME_COLORS[label] for label in shown],
        edgecolor="white",
        linewidth=0.3,
    )
    ax.set_ylim(0, 1)
    ax.set_xlim(steps[0], steps[-1])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _evaluation_metric(run: Run) -> str:
    return "eval/success_greedy" if run.has("eval/success_greedy") else "eval/success"


def draw_groups(ax: Axes, run: Run) -> None:
    """Success per group: a line each, or a map of groups by steps if there are many."""
    name = _evaluation_metric(run)
    groups = run.groups(name)
    if len(groups) <= _MAX_GROUP_LINES:
        for color, group in zip(PALETTE, groups, strict=False):
            line(ax, run, f"{name}/{group}", group, color)
        percent_axis(ax)
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


def _environments(ax: Axes, run: Run) -> None:
    """Success of every environment: training as a line, evaluation dotted in the same colour."""
    metric = _evaluation_metric(run)
    names = {*run.environments("rollout/success"), *run.environments(metric)}
    for color, name in zip(itertools.cycle(PALETTE), sorted(names), strict=False):
        smooth_line(ax, run, of_environment("rollout/success", name), name, color)
        line(ax, run, of_environment(metric, name), f"{name}, evaluation", color, ls=":")
    percent_axis(ax)


def _environment_turns(ax: Axes, run: Run) -> None:
    """Turns used in every environment, under its turn limit."""
    names = run.environments("rollout/turns_mean")
    for color, name in zip(itertools.cycle(PALETTE), names, strict=False):
        smooth_line(ax, run, of_environment("rollout/turns_mean", name), name, color)
        steps, turns = run.series(of_environment("horizon/turns", name))
        ax.step(steps, turns, where="mid", color=color, lw=1.2, ls="--", label=f"{name}, limit")
    ax.set_ylim(bottom=0)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One figure: made if the run has any of `needs` (names of `metrics.METRICS`).

    `unit` labels the vertical axis.
    """

    file: str
    title: str
    unit: str
    needs: tuple[str, ...]
    draw: Callable[[Axes, Run], None]

    def is_possible(self, run: Run) -> bool:
        """Whether the run has something to draw."""
        return any(self._has(run, name) for name in self.needs)

    @staticmethod
    def _has(run: Run, name: str) -> bool:
        if name.endswith("/<group>"):
            return bool(run.groups(name.removesuffix("/<group>")))
        if "/<environment>/" in name:
            return bool(run.environments(name.replace("/<environment>/", "/")))
        return run.has(name)


# In the order in which summary.png takes them.
PANELS = (
    Panel(
        "success",
        "Solved tasks",
        "share of episodes",
        ("rollout/success", "eval/success", "eval/success_greedy"),
        _success,
    ),
    Panel(
        "turns",
        "Turns and horizon",
        "turns per episode",
        ("rollout/turns_mean", "eval/turns_mean", "eval/turns_mean_greedy"),
        _turns,
    ),
    Panel(
        "rounds",
        "Episodes that are imitated",
        "episodes",
        ("agentevol/kept",),
        _lines(
            ("agentevol/explored", "explored"),
            ("agentevol/kept", "kept"),
            ("agentevol/demonstrations", "demonstrations"),
        ),
    ),
    Panel(
        "sft_loss",
        "Loss",
        "nats per token",
        ("sft/loss",),
        _lines(("sft/loss", "training")),
    ),
    Panel(
        "dpo_loss",
        "Preference loss",
        "nats",
        ("dpo/loss",),
        _lines(("dpo/loss", "training")),
    ),
    Panel(
        "dpo_accuracy",
        "Pairs in the right order",
        "share of pairs",
        ("dpo/accuracy",),
        _lines(("dpo/accuracy", "chosen has the larger implicit reward"), level=0.5),
    ),
    Panel(
        "dpo_rewards",
        "Implicit rewards",
        "nats, from the reference",
        ("dpo/margin", "dpo/chosen_reward", "dpo/rejected_reward"),
        _lines(
            ("dpo/chosen_reward", "chosen"),
            ("dpo/rejected_reward", "rejected"),
            ("dpo/margin", "margin"),
            level=0.0,
        ),
    ),
    Panel(
        "dpo_logprobs",
        "Log-probability of an episode",
        "nats",
        ("dpo/chosen_logprob", "dpo/rejected_logprob"),
        _lines(("dpo/chosen_logprob", "chosen"), ("dpo/rejected_logprob", "rejected")),
    ),
    Panel("reward", "Reward", "reward per episode", ("rollout/reward_mean",), _reward),
    Panel("entropy", "Policy entropy", "nats per token", ("policy/entropy",), _entropy),
    Panel(
        "kl",
        "Divergence",
        "nats per token",
        ("policy/kl_k3", "policy/approx_kl"),
        _lines(("policy/kl_k3", "from the reference (k3)"), ("policy/approx_kl", "of the update")),
    ),
    Panel("time", "Where the time goes", "share of a step", ("time/iteration_s",), _time),
    Panel(
        "grad_norm",
        "Gradient norm",
        "norm before clipping",
        ("policy/grad_norm",),
        _lines(("policy/grad_norm", "policy"), ("critic/grad_norm", "critic"), positive_log=True),
    ),
    Panel(
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
    Panel(
        "learning_rate",
        "Learning rate",
        "per step",
        ("policy/learning_rate",),
        _lines(("policy/learning_rate", "of the policy")),
    ),
    Panel(
        "padding",
        "Padding of the batch",
        "share of positions",
        ("batch/padding_share",),
        _lines(("batch/padding_share", "without a token")),
    ),
    Panel(
        "clip",
        "Clipped tokens",
        "share of action tokens",
        ("policy/clip_fraction",),
        _lines(("policy/clip_fraction", "ratio clipped")),
    ),
    Panel(
        "critic",
        "Critic",
        "reward",
        ("critic/value_mean", "critic/return_mean"),
        _lines(("critic/value_mean", "expected"), ("critic/return_mean", "came")),
    ),
    Panel(
        "explained",
        "What the critic knows",
        "share of the variance of returns",
        ("critic/explained_variance",),
        _lines(("critic/explained_variance", "explained")),
    ),
    Panel(
        "throughput",
        "Throughput",
        "tokens per second",
        ("rate/decode_tokens_per_s", "rate/train_tokens_per_s"),
        _lines(("rate/decode_tokens_per_s", "decoding"), ("rate/train_tokens_per_s", "training")),
    ),
    Panel(
        "groups",
        "Solved tasks per group, evaluation",
        "share of episodes",
        ("eval/success/<group>", "eval/success_greedy/<group>"),
        draw_groups,
    ),
    Panel(
        "environments",
        "Solved tasks per environment",
        "share of episodes",
        ("rollout/<environment>/success", "eval/<environment>/success"),
        _environments,
    ),
    Panel(
        "environment_turns",
        "Turns and horizon per environment",
        "turns per episode",
        ("rollout/<environment>/turns_mean",),
        _environment_turns,
    ),
)
