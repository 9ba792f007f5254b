"""Table of the figures of a run. Each figure shows a few related metrics."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from agentgym_jax.telemetry.metrics import add_environment
from agentgym_jax.viewer.series import Run, horizon_stages, rolling_mean, visible_time_shares

# Okabe and Ito's palette, distinguishable with any colour vision
# (https://jfly.uni-koeln.de/color/).
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PURPLE, _SKY, _YELLOW, _BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
_PALETTE = (_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, _BLACK, _YELLOW)
TIME_COLORS = {
    "prefill": _YELLOW,
    "decode": _ORANGE,
    "waiting for environments": _RED,
    "rollout, other": "#B8860B",
    "scoring": _PURPLE,
    "update": _BLUE,
    "data": "#7F7F7F",
    "other": "#DDDDDD",
    "evaluation": _GREEN,
    "checkpoint": _BLACK,
}
_ROLLING_STEPS = 10
_FEW_POINTS = 30  # curves with at most this number of points have markers
_MAX_STAGES = 12  # with more stages, the horizon is not drawn in the background
_MAX_GROUP_LINES = 6  # with more groups, the figure is a heat map


@dataclasses.dataclass(frozen=True)
class Panel:
    """One figure, which is drawn if the run has any metric of `needs`."""

    file: str  # name of the file without its suffix
    title: str
    unit: str  # label of the vertical axis
    needs: tuple[str, ...]  # names in `metrics.METRICS`
    draw: Callable[[Axes, Run], None]


def _line(ax: Axes, run: Run, name: str, label: str, color: str, **style: Any) -> None:
    steps, values = run.series(name)
    if len(steps):
        marker = "o" if len(steps) <= _FEW_POINTS else ""
        ax.plot(steps, values, label=label, color=color, marker=marker, **style)


def _smooth_line(ax: Axes, run: Run, name: str, label: str, color: str) -> None:
    """Draws the values faintly, with their rolling mean on top of them."""
    steps, values = run.series(name)
    if len(steps) <= _ROLLING_STEPS:
        _line(ax, run, name, label, color)
        return
    ax.plot(steps, values, color=color, alpha=0.3, lw=0.9)
    mean = rolling_mean(values, _ROLLING_STEPS)
    ax.plot(steps, mean, color=color, label=f"{label}, mean of {_ROLLING_STEPS} steps")


def _turn_limit(ax: Axes, run: Run, name: str, label: str, color: str) -> None:
    ax.step(*run.series(name), where="mid", color=color, lw=1.2, ls="--", label=label)


def _intervals(ax: Axes, run: Run, name: str, color: str) -> None:
    """Draws the confidence interval of an evaluation metric at the steps that have both bounds.

    There is no band between two evaluations, because nothing was measured there.
    """
    low_steps, low = run.series(f"{name}_low")
    high_steps, high = run.series(f"{name}_high")
    common, at_low, at_high = np.intersect1d(low_steps, high_steps, return_indices=True)
    if len(common):
        ax.vlines(common, low[at_low], high[at_high], color=color, alpha=0.6, lw=1.4)


def _shade_horizon(ax: Axes, run: Run) -> None:
    """Draws a background band with its turn limit for each stage of the horizon.

    With several environments no bands are drawn, because the stages of the environments differ.
    """
    stages = horizon_stages(*run.series("horizon/turns"))
    if run.environments("horizon/turns") or not 1 < len(stages) <= _MAX_STAGES:
        return
    longest = max(turns for _, _, turns in stages)
    for first, last, turns in stages:
        ax.axvspan(first - 0.5, last + 0.5, color=_SKY, alpha=0.22 * turns / longest, lw=0)
        ax.text(
            (first + last) / 2,
            0.985,
            f"{turns:g} turns",
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=7,
            color="#555555",
        )


def _percent_axis(ax: Axes) -> None:
    ax.set_ylim(-0.02, 1.08)  # room above 100 % for the horizon labels
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _success(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _smooth_line(ax, run, "rollout/success", _LABELS["rollout/success"], _BLUE)
    _intervals(ax, run, "eval/success", _ORANGE)
    _line(ax, run, "eval/success", _LABELS["eval/success"], _ORANGE)
    _intervals(ax, run, "eval/success_greedy", _RED)
    _line(ax, run, "eval/success_greedy", _LABELS["eval/success_greedy"], _RED)
    _percent_axis(ax)


def _turns(ax: Axes, run: Run) -> None:
    _smooth_line(ax, run, "rollout/turns_mean", _LABELS["rollout/turns_mean"], _BLUE)
    _line(ax, run, "eval/turns_mean", _LABELS["eval/turns_mean"], _ORANGE)
    _line(ax, run, "eval/turns_mean_greedy", _LABELS["eval/turns_mean_greedy"], _RED)
    if run.has("horizon/turns"):
        _turn_limit(ax, run, "horizon/turns", _LABELS["horizon/turns"], _BLACK)
    ax.set_ylim(bottom=0)


def _reward(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _smooth_line(ax, run, "rollout/reward_mean", _LABELS["rollout/reward_mean"], _BLUE)


def _entropy(ax: Axes, run: Run) -> None:
    _shade_horizon(ax, run)
    _line(ax, run, "policy/entropy", _LABELS["policy/entropy"], _PURPLE)
    ax.set_ylim(bottom=0)


def _time(ax: Axes, run: Run) -> None:
    steps, shares = visible_time_shares(run)
    if len(steps) == 1:  # a filled area needs two points
        steps = np.array([steps[0] - 0.5, steps[0] + 0.5])
        shares = {label: np.repeat(values, 2) for label, values in shares.items()}
    ax.stackplot(
        steps,
        list(shares.values()),
        labels=list(shares),
        colors=[TIME_COLORS[label] for label in shares],
        edgecolor="white",
        linewidth=0.3,
    )
    ax.set_ylim(0, 1)
    ax.set_xlim(steps[0], steps[-1])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _evaluation_metric(run: Run) -> str:
    return "eval/success_greedy" if run.has("eval/success_greedy") else "eval/success"


def _groups(ax: Axes, run: Run) -> None:
    """Draws a line per task group, or a heat map of groups and steps if there are many groups."""
    name = _evaluation_metric(run)
    groups = run.groups(name)
    if len(groups) <= _MAX_GROUP_LINES:
        for color, group in zip(_PALETTE, groups, strict=False):
            _line(ax, run, f"{name}/{group}", group, color)
        _percent_axis(ax)
        return
    columns = [run.series(f"{name}/{group}") for group in groups]
    steps = np.unique(np.concatenate([steps for steps, _ in columns]))
    table = np.full((len(groups), len(steps)), np.nan)
    for row, (at, values) in zip(table, columns, strict=True):
        row[np.searchsorted(steps, at)] = values
    mesh = ax.pcolormesh(table, cmap="cividis", vmin=0, vmax=1)
    ax.figure.colorbar(mesh, ax=ax, format=PercentFormatter(1.0, decimals=0))
    every = max(1, len(steps) // 8)
    ax.set_xticks(np.arange(len(steps))[::every] + 0.5, [f"{step:g}" for step in steps[::every]])
    font_size = max(3.5, min(8, 150 / len(groups)))
    ax.set_yticks(np.arange(len(groups)) + 0.5, groups, fontsize=font_size)
    ax.set_ylabel("")  # each row of the heat map has a label
    ax.invert_yaxis()
    ax.grid(False)


def _environments(ax: Axes, run: Run) -> None:
    """Draws training and evaluation (dotted) of every environment in the same colour."""
    metric = _evaluation_metric(run)
    names = {*run.environments("rollout/success"), *run.environments(metric)}
    for color, name in zip(itertools.cycle(_PALETTE), sorted(names), strict=False):
        _smooth_line(ax, run, add_environment("rollout/success", name), name, color)
        _line(ax, run, add_environment(metric, name), f"{name}, evaluation", color, ls=":")
    _percent_axis(ax)


def _environment_turns(ax: Axes, run: Run) -> None:
    names = run.environments("rollout/turns_mean")
    for color, name in zip(itertools.cycle(_PALETTE), names, strict=False):
        _smooth_line(ax, run, add_environment("rollout/turns_mean", name), name, color)
        _turn_limit(ax, run, add_environment("horizon/turns", name), f"{name}, limit", color)
    ax.set_ylim(bottom=0)


# Label of a metric in the legend of its panel.
_LABELS = {
    "rollout/success": "training",
    "eval/success": "evaluation, sampled",
    "eval/success_greedy": "evaluation, greedy",
    "rollout/turns_mean": "turns used",
    "eval/turns_mean": "evaluation, sampled",
    "eval/turns_mean_greedy": "evaluation, greedy",
    "horizon/turns": "turn limit",
    "rollout/reward_mean": "training",
    "policy/entropy": "entropy",
    "judge/score_mean": "training",
    "agentevol/explored": "explored",
    "agentevol/kept": "kept",
    "agentevol/demonstrations": "demonstrations",
    "sft/loss": "training",
    "dpo/loss": "training",
    "dpo/accuracy": "chosen has the larger implicit reward",
    "dpo/chosen_reward": "chosen",
    "dpo/rejected_reward": "rejected",
    "dpo/margin": "margin",
    "dpo/chosen_logprob": "chosen",
    "dpo/rejected_logprob": "rejected",
    "policy/kl_k3": "from the reference (k3)",
    "policy/approx_kl": "of the update",
    "policy/grad_norm": "policy",
    "critic/grad_norm": "critic",
    "policy/logprob_gap_mean": "mean",
    "policy/logprob_gap_max": "largest",
    "policy/learning_rate": "of the policy",
    "batch/padding_share": "without a token",
    "policy/clip_fraction": "ratio clipped",
    "critic/value_mean": "expected",
    "critic/return_mean": "observed",
    "critic/explained_variance": "explained",
    "rate/decode_tokens_per_s": "decoding",
    "rate/train_tokens_per_s": "training",
}


def _curves(
    file: str,
    title: str,
    unit: str,
    names: tuple[str, ...],
    *,
    needs: tuple[str, ...] = (),
    positive_log: bool = False,
    level: float | None = None,
) -> Panel:
    """Returns a panel with one line per metric of `names`, and a horizontal line at `level`.

    `needs` defaults to `names`. With `positive_log` the axis is logarithmic if all values are
    positive.
    """

    def draw(ax: Axes, run: Run) -> None:
        if level is not None:
            ax.axhline(level, color=_BLACK, lw=0.8, ls=":")
        for color, name in zip(_PALETTE, names, strict=False):
            _line(ax, run, name, _LABELS[name], color)
        values = np.concatenate([run.series(name)[1] for name in names])
        if positive_log and np.all(values > 0):
            ax.set_yscale("log")

    return Panel(file, title, unit, needs or names, draw)


# Panels, in the order in which they are selected for summary.png.
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
    _curves(
        "rounds",
        "Episodes that are imitated",
        "episodes",
        ("agentevol/explored", "agentevol/kept", "agentevol/demonstrations"),
        needs=("agentevol/kept",),
    ),
    _curves("sft_loss", "Loss", "nats per token", ("sft/loss",)),
    _curves("dpo_loss", "Preference loss", "nats", ("dpo/loss",)),
    _curves(
        "dpo_accuracy", "Pairs in the right order", "share of pairs", ("dpo/accuracy",), level=0.5
    ),
    _curves(
        "dpo_rewards",
        "Implicit rewards",
        "nats, from the reference",
        ("dpo/chosen_reward", "dpo/rejected_reward", "dpo/margin"),
        needs=("dpo/margin", "dpo/chosen_reward", "dpo/rejected_reward"),
        level=0.0,
    ),
    _curves(
        "dpo_logprobs",
        "Log-probability of an episode",
        "nats",
        ("dpo/chosen_logprob", "dpo/rejected_logprob"),
    ),
    Panel("reward", "Reward", "reward per episode", ("rollout/reward_mean",), _reward),
    _curves("judge", "Score of the judge", "score per episode", ("judge/score_mean",)),
    Panel("entropy", "Policy entropy", "nats per token", ("policy/entropy",), _entropy),
    _curves("kl", "Divergence", "nats per token", ("policy/kl_k3", "policy/approx_kl")),
    Panel("time", "Where the time goes", "share of a step", ("time/iteration_s",), _time),
    _curves(
        "grad_norm",
        "Gradient norm",
        "norm before clipping",
        ("policy/grad_norm", "critic/grad_norm"),
        needs=("policy/grad_norm",),
        positive_log=True,
    ),
    _curves(
        "logprob_gap",
        "Sampler against learner",
        "log-probability gap, nats",
        ("policy/logprob_gap_mean", "policy/logprob_gap_max"),
        positive_log=True,
    ),
    _curves("learning_rate", "Learning rate", "per step", ("policy/learning_rate",)),
    _curves("padding", "Padding of the batch", "share of positions", ("batch/padding_share",)),
    _curves("clip", "Clipped tokens", "share of action tokens", ("policy/clip_fraction",)),
    _curves("critic", "Critic", "reward", ("critic/value_mean", "critic/return_mean")),
    _curves(
        "explained",
        "Quality of the critic",
        "share of the variance of returns",
        ("critic/explained_variance",),
    ),
    _curves(
        "throughput",
        "Throughput",
        "tokens per second",
        ("rate/decode_tokens_per_s", "rate/train_tokens_per_s"),
    ),
    Panel(
        "groups",
        "Solved tasks per group, evaluation",
        "share of episodes",
        ("eval/success/<group>", "eval/success_greedy/<group>"),
        _groups,
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


def label_of(metric: str) -> str:
    """Returns the legend label of a metric in its panel: a phrase, a group or an environment."""
    if metric in _LABELS:
        return _LABELS[metric]
    area, *middle, name = metric.split("/")
    if not middle:
        return name.replace("_", " ")
    if middle[0] in ("success", "success_greedy"):  # eval/success/<group>
        return f"{name}, greedy" if middle[0].endswith("greedy") else name
    suffix = {"eval": ", evaluation", "horizon": ", limit"}.get(area, "")
    return f"{middle[0]}{suffix}"


def panels_of(run: Run) -> list[Panel]:
    """Returns the panels for which the run has data."""
    return [panel for panel in PANELS if any(run.expand(need) for need in panel.needs)]
