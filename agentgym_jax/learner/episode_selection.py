"""Selection and weighting of the sampled episodes that a policy is then trained to imitate."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from agentgym_jax.episodes.trajectory import Trajectory

# Measures of an episode by name.
MEASURES: Mapping[str, Callable[[Trajectory], float]] = {
    "success": lambda t: float(t.success),
    "score": lambda t: t.score * t.score_scale,
    "reward": lambda t: t.reward,
}
WEIGHTINGS = ("equal", "reward", "importance")


@dataclasses.dataclass(frozen=True)
class Rule:
    """Condition for imitating a valid episode: its measure is > 0 and at least the threshold."""

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

    Args:
      trajectories: Episodes of all tasks.
      rules: Rule of each environment; its measure is the reward r.
      keep_per_task: Number of best episodes to keep per task, ties in the given order; 0 keeps all.
      weighting: `equal` gives weight 1; `reward` gives r, which estimates the expectation.
        `importance` gives r / sum of r over the task's kept episodes: self-normalised importance
        weights for the posterior q(episode | task), proportional to pi(episode | task) * r.
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
