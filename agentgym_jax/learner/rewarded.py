"""Which explored episodes a policy imitates, and how much each of them counts."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from agentgym_jax.trajectory import Trajectory

MEASURES: Mapping[str, Callable[[Trajectory], float]] = {
    # What an episode is judged by.
    "success": lambda t: float(t.success),
    "score": lambda t: t.score * t.score_scale,
    "reward": lambda t: t.reward,
}
WEIGHTINGS = ("equal", "reward", "importance")


@dataclasses.dataclass(frozen=True)
class Rule:
    """When an episode of one environment is imitated.

    Attributes:
      measure: a key of MEASURES.
      threshold: it is imitated if its measure is at least this, and above 0.
    """

    measure: str
    threshold: float

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise ValueError(f"measure={self.measure!r} is none of {', '.join(MEASURES)}")

    def value(self, trajectory: Trajectory) -> float | None:
        """The measure of an episode that is imitated; None for all others."""
        if not trajectory.outcome.is_valid or not trajectory.action_mask.any():
            return None
        value = MEASURES[self.measure](trajectory)
        return value if value >= self.threshold and value > 0 else None


def rewarded(
    trajectories: Sequence[Trajectory],
    rules: Mapping[str, Rule],
    *,
    keep_per_task: int,
    weighting: str,
) -> list[tuple[int, float]]:
    """Index and weight of the episodes that are imitated, in the order given.

    AgentEvol maximises E[r log pi(episode)] over its own samples (arXiv:2406.04151, section 4).
    With rewards 0 and 1 the three weightings differ only in tasks solved several times:

      equal: 1, a filter.
      reward: r, the estimate of that expectation.
      importance: r / sum of r over the task's kept episodes: self-normalised importance weights
        of the posterior q(episode | task) ~ pi(episode | task) r, with the policy that sampled as
        proposal. Every solved task counts the same.

    Args:
      trajectories: of any tasks; several of one task have the same `item_id`.
      rules: by environment.
      keep_per_task: the best so many of a task, the first of equals; 0 keeps all.
      weighting: one of WEIGHTINGS.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting={weighting!r} is none of {', '.join(WEIGHTINGS)}")
    values: dict[int, float] = {}
    tasks: dict[str, list[int]] = {}
    for i, trajectory in enumerate(trajectories):
        value = rules[trajectory.environment].value(trajectory)
        if value is not None:
            values[i] = value
            tasks.setdefault(trajectory.item_id, []).append(i)
    weights: dict[int, float] = {}
    for members in tasks.values():
        best = sorted(members, key=lambda i: (-values[i], i))
        kept = best[:keep_per_task] if keep_per_task else best
        weights |= dict(zip(kept, _scaled([values[i] for i in kept], weighting), strict=True))
    return [(i, weights[i]) for i in sorted(weights)]


def _scaled(values: Sequence[float], weighting: str) -> list[float]:
    """Weights of one task's kept episodes from their measures."""
    if weighting == "equal":
        return [1.0] * len(values)
    scale = sum(values) if weighting == "importance" else 1.0
    return [value / scale for value in values]
