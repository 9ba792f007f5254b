"""Guards check the metrics of every step and act if values indicate a failing run.

Every checkpoint contains their bounded history, so a resumed run takes the same decisions.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from agentgym_jax.checks.limits import Range

Metrics = Mapping[str, float]
Action = Literal["off", "warn", "skip", "stop"]
Steps = Annotated[int, Range(1, unit="steps")]
_PAGE = "docs/troubleshooting.md"
# Our choice. Runs in experiments/ that learned started with at least 0.34 nats. In three runs that
# started with 0.06 nats or less, success did not rise.
_START_STEPS = 2
_START_ENTROPY = 0.1  # nats per sampled token
_START_INFORMATIVE = 0.25  # share of the groups


@dataclasses.dataclass(frozen=True)
class GuardSettings:
    """Config key `guards`: actions on values that indicate a failing run.

    An action is `off`, `warn`, `skip` (withholds the update) or `stop` (withholds it, logs and
    saves the step, and ends the run with an error). The thresholds are our choice, far outside the
    values of successful runs in experiments/.

    Attributes:
      window: Number of steps in a guard's history; the guard is inactive until the history is full.
      nonfinite: Action on a NaN or infinite loss or gradient, which is never applied.
      nonfinite_steps: Number of consecutive steps with a NaN or infinite value that ends a run.
      grad_spike: Action on a gradient norm above `grad_spike_factor` times the window's median.
      grad_spike_factor: Factor above the median for `grad_spike`.
      logprob_gap: Action on a sampler-learner log-probability gap above `learner.max_logprob_gap`.
      entropy_collapse: Action if the mean entropy of the window is below `entropy_floor`.
      entropy_floor: Threshold of `entropy_collapse`, in nats per sampled token.
      reward_collapse: Action if the mean trained reward of the window (with judge, shaping and
        penalties) is far below the best mean so far.
      reward_drop: Fraction of the best mean that the reward must lose to trip `reward_collapse`.
      hopeless_start: Action if the first two rollouts leave little to learn from: no success, few
        informative groups, or an entropy near zero.
    """

    window: Steps = 10
    nonfinite: Literal["skip", "stop"] = "skip"
    nonfinite_steps: Steps = 3
    grad_spike: Action = "warn"
    grad_spike_factor: Annotated[float, Range(above=1)] = 10.0
    logprob_gap: Action = "stop"
    entropy_collapse: Action = "warn"
    entropy_floor: Annotated[float, Range(0, unit="nats per token")] = 0.01
    reward_collapse: Action = "warn"
    reward_drop: Annotated[float, Range(above=0)] = 0.5
    hopeless_start: Action = "warn"


class GuardStop(RuntimeError):
    """Error of a guard with action `stop`; the step is saved, and its update is withheld."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Report of one tripped guard."""

    guard: str
    action: str  # `warn`, `skip` or `stop`
    text: str  # observed value, expected value and remedy


@dataclasses.dataclass(frozen=True)
class History:
    """Values of earlier steps; each tuple of numbers has at most the latest `window` values."""

    grad_norms: tuple[float, ...] = ()  # finite gradient norms
    entropies: tuple[float, ...] = ()  # means of steps with episodes, in nats per sampled token
    rewards: tuple[float, ...] = ()  # means of the trained rewards of steps with episodes
    best_reward: float | None = None  # largest mean of a full window
    nonfinite_steps: int = 0  # latest consecutive steps with a NaN or infinite loss or gradient
    seen: tuple[str, ...] = ()  # guards that tripped in the last step

    def to_json(self) -> dict[str, Any]:
        """Returns the history as a JSON object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any] | None) -> "History":
        """Returns the history that `to_json` wrote; an empty history for None."""
        if record is None:
            return cls()
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in record.items()
        }
        return cls(**values)


def spike_threshold(options: GuardSettings, history: History) -> float:
    """Returns the limit of gradient norms for `grad_spike`; infinite until the window is full."""
    if options.grad_spike == "off" or len(history.grad_norms) < options.window:
        return math.inf
    return options.grad_spike_factor * statistics.median(history.grad_norms)


def grad_norm_limit(options: GuardSettings, history: History) -> float:
    """Returns the gradient norm above which the next update is not applied."""
    withholds = options.grad_spike in ("skip", "stop")
    return spike_threshold(options, history) if withholds else math.inf


def check_episodes(options: GuardSettings, history: History, metrics: Metrics) -> list[Finding]:
    """Checks entropy and reward of a step's episodes before the update."""
    is_start = len(history.rewards) < _START_STEPS
    history = _append_episodes(options, history, metrics)
    texts = {}
    if is_start and len(history.rewards) == _START_STEPS:
        text = _describe_start(history, metrics)
        texts = {"hopeless_start": text} if text else {}
    if len(history.rewards) < options.window or history.best_reward is None:
        return _act(options, texts)
    entropy = statistics.fmean(history.entropies)
    if entropy < options.entropy_floor:
        texts["entropy_collapse"] = (
            f"the policy's entropy was {entropy:.4g} nats per sampled token over the last "
            f"{options.window} steps, less than guards.entropy_floor={options.entropy_floor}: "
            "it hardly explores. Unless the task is solved, raise algorithm.entropy_coef or "
            "lower optimizer.learning_rate"
        )
    reward, best = statistics.fmean(history.rewards), history.best_reward
    expected = best - options.reward_drop * abs(best)
    if reward < expected:
        texts["reward_collapse"] = (
            f"the mean trained reward was {reward:.4g} over the last {options.window} steps and "
            f"{best:.4g} at its best; at least {expected:.4g} was expected "
            f"(guards.reward_drop={options.reward_drop}). Go back to an earlier checkpoint with "
            "a lower optimizer.learning_rate or a larger algorithm.kl_coef"
        )
    return _act(options, texts)


def _act(options: GuardSettings, texts: Mapping[str, str]) -> list[Finding]:
    """Returns the findings of guards that are not `off`."""
    found = [Finding(guard, getattr(options, guard), text) for guard, text in texts.items()]
    return [finding for finding in found if finding.action != "off"]


def _describe_start(history: History, metrics: Metrics) -> str:
    """Returns the faults of the first rollouts and their remedies; empty without a fault."""
    informative = metrics.get("rollout/informative_groups", 0.0)
    # groups with one valid episode, such as all of size 1, cannot differ
    groups = informative + metrics.get("rollout/zero_variance_groups", 0.0)
    has_signal = informative or metrics.get("policy/advantage_std", 0.0)
    entropy = statistics.fmean(history.entropies)
    found = []
    if not metrics.get("rollout/success", 1.0) and not has_signal:
        found.append(
            "no episode has succeeded and no group of samples differs in reward, so nothing can "
            "be reinforced: easier tasks, a warm start or a reward for partial success are needed"
        )
    elif informative < _START_INFORMATIVE * groups:
        found.append(
            f"only {informative:.0f} of {groups:.0f} groups of samples differ in reward: tasks of "
            "medium difficulty (rollout.curriculum) or larger groups are needed"
        )
    if entropy < _START_ENTROPY:
        found.append(
            f"the entropy is {entropy:.2g} nats per sampled token, so the samples of a task hardly "
            "differ: a shorter warm start or a higher sampling.temperature is needed"
        )
    return "after two rollouts " + "; ".join(found) if found else ""


def check_scores(options: GuardSettings, metrics: Metrics, max_gap: float) -> list[Finding]:
    """Checks that the log-probability gap of the sampling weights is at most `max_gap` nats."""
    name = "policy/logprob_gap_mean"
    # `<=` instead of `>`, so that a NaN also trips the guard
    if options.logprob_gap == "off" or name not in metrics or metrics[name] <= max_gap:
        return []
    text = (
        "the sampler's and the learner's log-probabilities of the same tokens differ by "
        f"{metrics[name]:.4g} nats on average (largest {metrics['policy/logprob_gap_max']:.4g}), "
        f"more than learner.max_logprob_gap={max_gap:g}. Sampling and training do not see the same "
        "policy: check dtypes and temperature, or raise the limit"
    )
    return [Finding("logprob_gap", options.logprob_gap, text)]


def check_update(options: GuardSettings, history: History, metrics: Metrics) -> list[Finding]:
    """Checks the loss and gradients of a step after its optimiser steps."""
    found = []
    if _is_nonfinite(metrics):
        steps = history.nonfinite_steps + 1
        is_end = options.nonfinite == "stop" or steps >= options.nonfinite_steps
        text = (
            f"the loss or the gradient was not finite in {steps} step(s) in a row and these updates "
            f"were not applied (guards.nonfinite_steps={options.nonfinite_steps}). Lower "
            "optimizer.learning_rate, or look for a weight that is not finite or a reward that is "
            "far from the order of 1"
        )
        found.append(Finding("nonfinite", "stop" if is_end else "skip", text))
    limit = spike_threshold(options, history)
    largest = metrics.get("policy/grad_norm_max", 0.0)
    if largest > limit:
        outcome = "was applied" if options.grad_spike == "warn" else "was not applied"
        text = (
            f"a gradient norm of {largest:.4g}, more than {limit:.4g} "
            f"(guards.grad_spike_factor={options.grad_spike_factor} times the median of the last "
            f"{options.window} steps); the update {outcome}. If it is not one bad batch, lower "
            "optimizer.learning_rate or optimizer.max_grad_norm"
        )
        found.append(Finding("grad_spike", options.grad_spike, text))
    return found


def withholds_update(findings: Sequence[Finding]) -> bool:
    """Returns True if a guard withholds the update of the step."""
    return any(finding.action in ("skip", "stop") for finding in findings)


def stop_reason(findings: Sequence[Finding]) -> str | None:
    """Returns the reason to end the run after this step; None if the run continues."""
    texts = [f"guard {f.guard}: {f.text}" for f in findings if f.action == "stop"]
    return f"{'; '.join(texts)} ({_PAGE})" if texts else None


def new_findings(findings: Sequence[Finding], history: History) -> list[str]:
    """Returns the messages of guards that tripped in this step but not in the previous one."""
    return [
        f"guard {f.guard} ({f.action}): {f.text} ({_PAGE})"
        for f in findings
        if f.guard not in history.seen
    ]


def guard_metrics(findings: Sequence[Finding]) -> dict[str, float]:
    """Returns the number of tripped guards, and the value 1 for every tripped guard."""
    tripped = {f"guards/{finding.guard}": 1.0 for finding in findings}
    return {"guards/tripped": float(len(findings))} | tripped


def update_history(
    options: GuardSettings, history: History, metrics: Metrics, findings: Sequence[Finding]
) -> History:
    """Returns the history extended by a step."""
    history = _append_episodes(options, history, metrics)
    norms, is_nonfinite = history.grad_norms, _is_nonfinite(metrics)
    # norms of withheld updates are included so that the median adapts to a lasting change
    if "policy/grad_norm" in metrics and not is_nonfinite:
        norms = _append(options, norms, metrics["policy/grad_norm"])
    return dataclasses.replace(
        history,
        grad_norms=norms,
        nonfinite_steps=history.nonfinite_steps + 1 if is_nonfinite else 0,
        seen=tuple(finding.guard for finding in findings),
    )


def _append_episodes(options: GuardSettings, history: History, metrics: Metrics) -> History:
    """Adds entropy and reward of a step to the history, if the step has valid episodes."""
    reward = metrics.get("policy/trained_reward_mean", math.nan)
    if not math.isfinite(reward):  # it contains a divergence that is no number
        return history
    rewards = _append(options, history.rewards, reward)
    best = history.best_reward
    if len(rewards) == options.window:
        mean = statistics.fmean(rewards)
        best = mean if best is None else max(best, mean)
    entropies = _append(options, history.entropies, metrics["rollout/sampled_entropy"])
    return dataclasses.replace(history, rewards=rewards, entropies=entropies, best_reward=best)


def _append(options: GuardSettings, values: Sequence[float], value: float) -> tuple[float, ...]:
    return (*values, value)[-options.window :]


def _is_nonfinite(metrics: Metrics) -> bool:
    return any(metrics.get(name, 0) > 0 for name in ("policy/nonfinite", "critic/skipped"))
