"""Selection and weighting of explored episodes that a policy then imitates."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from agentgym_jax.trajectory import Trajectory

MEASURES: Mapping[str, Callable[[Trajectory], float]] = {
    # Measures of an episode.
    "success": lambda t: float(t.success),
    "score": lambda t: t.score * t.score_scale,
    "reward": lambda t: t.reward,
}
WEIGHTINGS = ("equal", "reward", "importance")


@dataclasses.dataclass(frozen=True)
class Rule:
    """Condition for imitating an episode of one environment.

    An episode is imitated if its measure (a key of MEASURES) is above 0 and not below the
    threshold.
    """

    measure: str
    threshold: float

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise ValueError(f"measure={self.measure!r} is none of {', '.join(MEASURES)}")

    def value(self, trajectory: Trajectory) -> float | None:
        """Returns the measure of an episode if it is imitated, otherwise None."""
        if not trajectory.outcome.is_valid or not trajectory.action_mask.any():
            return None
        value = MEASURES[self.measure](trajectory)
        return value if value >= self.threshold and value > 0 else None


def select_episodes(
    trajectories: Sequence[Trajectory],
    rules: Mapping[str, Rule],
    *,
    keep_per_task: int,
    weighting: str,
) -> list[tuple[int, float]]:
    """Returns index and weight of every imitated episode, in the given order.

    AgentEvol maximises E[r log pi(episode)] over its own samples (arXiv:2406.04151, section 4).
    With rewards 0 and 1 the three weightings differ only in tasks solved several times:

      equal: 1, a filter.
      reward: r, the estimate of that expectation.
      importance: r / sum of r over the task's kept episodes: self-normalised importance weights
        of the posterior q(episode | task) ~ pi(episode | task) r, with the policy that sampled as
        proposal. Every solved task counts the same.

    `rules` has one rule per environment. Of each task, the `keep_per_task` best episodes are kept;
    0 keeps all. Ties are resolved by the given order.
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
        scale = sum(values[i] for i in kept) if weighting == "importance" else 1.0
        weights |= {i: 1.0 if weighting == "equal" else values[i] / scale for i in kept}
    return [(i, weights[i]) for i in sorted(weights)]
