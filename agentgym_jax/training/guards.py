"""What a run must not do unseen: each guard looks at the numbers of a step and has a declared action.

| guard | sees | before it |
|---|---|---|
| `nonfinite` | a loss or gradient that is no number | its update is never applied |
| `grad_spike` | a gradient norm far above those of the steps before | update |
| `logprob_gap` | sampler and learner that compute different policies | update |
| `entropy_collapse` | a policy that has stopped to explore | update |
| `reward_collapse` | a reward that has fallen far below what it was | update |

Actions: `off`; `warn`; `skip`, which withholds the update; `stop`, which withholds it, finishes the
step, saves and ends the run. All of it is a function of the metrics of a step and of a bounded
history of those before, which is in every checkpoint: a run that resumes decides as if it had never
stopped.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.run.settings import GuardSettings

Metrics = Mapping[str, float]


class GuardStop(RuntimeError):
    """A guard whose action is `stop`; the step it saw is logged and saved, its update withheld."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a guard saw.

    Attributes:
      guard: its name.
      action: `warn`, `skip` or `stop`.
      text: what was seen, what was expected, what to change.
    """

    guard: str
    action: str
    text: str


@dataclasses.dataclass(frozen=True)
class History:
    """What guards remember of the steps before; lists are as long as `guards.window` at most.

    Attributes:
      grad_norms: of steps with an update.
      entropies: of steps with episodes, nats per sampled token; likewise the next.
      rewards: mean reward of a step.
      best_reward: the largest mean of a full window so far; None before the first.
      nonfinite_steps: steps in a row whose loss or gradient was not finite.
      seen: guards that found something in the last step: they have spoken already.
    """

    grad_norms: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    best_reward: float | None = None
    nonfinite_steps: int = 0
    seen: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; floats come back the same."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any] | None) -> "History":
        """Inverse of `to_json`; empty from None, before the first checkpoint."""
        if record is None:
            return cls()
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in record.items()})


def grad_limit(options: GuardSettings, history: History) -> float:
    """Gradient norm above which the next updates are spikes; infinite while too little is known."""
    if options.grad_spike == "off" or len(history.grad_norms) < options.window:
        return math.inf
    return options.grad_spike_factor * statistics.median(history.grad_norms)


def withheld_above(options: GuardSettings, history: History) -> float:
    """Gradient norm above which the next updates are not applied."""
    withholds = options.grad_spike in ("skip", "stop")
    return grad_limit(options, history) if withholds else math.inf


def of_episodes(options: GuardSettings, history: History, metrics: Metrics) -> list[Finding]:
    """What the episodes of a step show, before its update."""
    with_this = _with_episodes(options, history, metrics)
    found = []
    if options.entropy_collapse != "off" and len(with_this.entropies) == options.window:
        entropy = statistics.fmean(with_this.entropies)
        if entropy < options.entropy_floor:
            text = (
                f"the policy's entropy was {entropy:.4g} nats per sampled token over the last "
                f"{options.window} steps, less than guards.entropy_floor={options.entropy_floor}: "
                "it hardly explores. If that is not because all is learned, raise "
                "algorithm.entropy_coef or lower optimizer.learning_rate"
            )
            found.append(Finding("entropy_collapse", options.entropy_collapse, text))
    best = with_this.best_reward
    if options.reward_collapse != "off" and best is not None:
        reward = statistics.fmean(with_this.rewards)
        expected = best - options.reward_drop * abs(best)
        if reward < expected:
            text = (
                f"the mean reward was {reward:.4g} over the last {options.window} steps and "
                f"{best:.4g} at its best; at least {expected:.4g} was expected "
                f"(guards.reward_drop={options.reward_drop}). Go back to an earlier checkpoint with "
                "a lower optimizer.learning_rate or a larger algorithm.kl_coef"
            )
            found.append(Finding("reward_collapse", options.reward_collapse, text))
    return found


def of_scores(options: GuardSettings, metrics: Metrics, max_gap: float) -> list[Finding]:
    """Whether sampler and learner compute the same policy, before the update.

    Args:
      options: section guards.
      metrics: with the gap, if it was measured.
      max_gap: learner.max_logprob_gap, nats.
    """
    name = "policy/logprob_gap_mean"
    # Not `>`: a gap that is no number is one as well.
    if options.logprob_gap == "off" or name not in metrics or metrics[name] <= max_gap:
        return []
    text = (
        "the sampler's and the learner's log-probabilities of the same tokens differ by "
        f"{metrics[name]:.5f} nats on average (largest {metrics['policy/logprob_gap_max']:.5f}), "
        f"more than learner.max_logprob_gap={max_gap}. Sampling and training do not see the same "
        "policy: check dtypes and temperature, or raise the limit"
    )
    return [Finding("logprob_gap", options.logprob_gap, text)]


def of_update(options: GuardSettings, history: History, metrics: Metrics) -> list[Finding]:
    """What the optimiser steps of a step show, after them.

    Args:
      options: section guards.
      history: before the step.
      metrics: of the step; `policy/nonfinite`, `critic/skipped` and `policy/grad_norm_max` are
        looked at, as far as the job has them.
    """
    found = []
    if _is_nonfinite(metrics):
        steps = history.nonfinite_steps + 1
        is_end = options.nonfinite == "stop" or steps >= options.nonfinite_steps
        text = (
            f"the loss or the gradient was not finite in {steps} step(s) in a row and these updates "
            f"were not applied (guards.nonfinite_steps={options.nonfinite_steps}). Lower "
            "optimizer.learning_rate, or look for a reward or a weight that is not finite"
        )
        found.append(Finding("nonfinite", "stop" if is_end else "skip", text))
    limit = grad_limit(options, history)
    largest = metrics["policy/grad_norm_max"] if "policy/grad_norm_max" in metrics else 0.0
    if largest > limit:
        withheld = "was applied" if options.grad_spike == "warn" else "was not applied"
        text = (
            f"a gradient norm of {largest:.4g}, more than {limit:.4g} "
            f"(guards.grad_spike_factor={options.grad_spike_factor} times the median of the last "
            f"{options.window} steps); the update {withheld}. If it is not one bad batch, lower "
            "optimizer.learning_rate or optimizer.max_grad_norm"
        )
        found.append(Finding("grad_spike", options.grad_spike, text))
    return found


def withholds(findings: Sequence[Finding]) -> bool:
    """Whether the update of the step is not made."""
    return any(finding.action in ("skip", "stop") for finding in findings)


def stop_of(findings: Sequence[Finding]) -> str | None:
    """Why the run ends after this step; None if it goes on."""
    texts = [f"guard {f.guard}: {f.text}" for f in findings if f.action == "stop"]
    return "; ".join(texts) or None


def unspoken(findings: Sequence[Finding], history: History) -> list[str]:
    """Lines for whoever watches: of guards that found nothing in the step before."""
    return [
        f"guard {f.guard} ({f.action}): {f.text}" for f in findings if f.guard not in history.seen
    ]


def metrics_of(findings: Sequence[Finding]) -> dict[str, float]:
    """How many guards found something, and which."""
    tripped = {f"guards/{finding.guard}": 1.0 for finding in findings}
    return {"guards/tripped": float(len(findings))} | tripped


def remembered(
    options: GuardSettings, history: History, metrics: Metrics, findings: Sequence[Finding]
) -> History:
    """The history after a step."""
    history = _with_episodes(options, history, metrics)
    norms, is_nonfinite = history.grad_norms, _is_nonfinite(metrics)
    # Withheld norms count as well: a level that stays is a new level after half a window.
    if "policy/grad_norm" in metrics and not is_nonfinite:
        norms = _last(options, norms, metrics["policy/grad_norm"])
    return dataclasses.replace(
        history,
        grad_norms=norms,
        nonfinite_steps=history.nonfinite_steps + 1 if is_nonfinite else 0,
        seen=tuple(finding.guard for finding in findings),
    )


def _with_episodes(options: GuardSettings, history: History, metrics: Metrics) -> History:
    """With entropy and reward of a step; as it was after one without valid episodes."""
    if "rollout/reward_mean" not in metrics:
        return history
    rewards = _last(options, history.rewards, metrics["rollout/reward_mean"])
    best = history.best_reward
    if len(rewards) == options.window:
        mean = statistics.fmean(rewards)
        best = mean if best is None else max(best, mean)
    entropies = _last(options, history.entropies, metrics["rollout/sampled_entropy"])
    return dataclasses.replace(history, rewards=rewards, entropies=entropies, best_reward=best)


def _last(options: GuardSettings, values: Sequence[float], value: float) -> tuple[float, ...]:
    return (*values, value)[-options.window :]


def _is_nonfinite(metrics: Metrics) -> bool:
    names = ("policy/nonfinite", "critic/skipped")
    return any(metrics[name] > 0 for name in names if name in metrics)
