"""What a run remembers from step to step beside its weights: a few numbers in every checkpoint.

The next memory is a pure function of the last one and of what a step measured, so a run that
resumes goes on as if it had never stopped.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.algorithms import controllers
from agentgym_jax.algorithms.horizon import HorizonState, HorizonStatistics
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon, Place, TurnLimit
from agentgym_jax.trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Memory:
    """State of everything that adapts.

    Attributes:
      expected_returns: baseline of the next step by environment; without those that had no
        episode yet.
      kl_coef: weight of the divergence in the reward of the next step.
      horizons: of the adaptive schedules that have begun, by their place.
      tasks_taken: where the next step begins in the order of the tasks.
    """

    expected_returns: Mapping[str, float]
    kl_coef: float
    horizons: Mapping[Place, HorizonState]
    tasks_taken: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; floats come back the same. A row of `horizons` is a place and its state."""
        rows = [
            dataclasses.asdict(place) | dataclasses.asdict(state)
            for place, state in sorted(self.horizons.items())
        ]
        return {
            "expected_returns": dict(self.expected_returns),
            "kl_coef": self.kl_coef,
            "horizons": rows,
            "tasks_taken": self.tasks_taken,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Memory":
        """Inverse of `to_json`."""
        fields = [field.name for field in dataclasses.fields(Place)]
        horizons = {}
        for row in record["horizons"]:
            state = {name: value for name, value in row.items() if name not in fields}
            horizons[Place(*(row[name] for name in fields))] = HorizonState(**state)
        return cls(record["expected_returns"], record["kl_coef"], horizons, record["tasks_taken"])


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """How a run adapts; nothing of it changes while it goes.

    Attributes:
      horizon: turn limits.
      baseline: kind `none`, or `moving_average` with its decay: of the mean return of a step,
        by environment.
      kl_reward: kind `none`, `fixed` with a coef, or `adaptive` with a first coef, a target in
        nats per action token and a rate: divergence from the reference in the reward.

    Raises:
      ValueError: a kind or one of its options is unknown, missing or impossible.
    """

    horizon: MixtureHorizon
    baseline: Mapping[str, Any]
    kl_reward: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check("baseline", self.baseline, {"none": (), "moving_average": ("decay",)})
        kinds = {"none": (), "fixed": ("coef",), "adaptive": ("coef", "target", "rate")}
        _check("kl_reward", self.kl_reward, kinds)
        if self.uses_kl_reward and self.kl_reward["coef"] <= 0:
            raise ValueError(f"kl_reward needs a positive coef; got {self.kl_reward['coef']}")
        self.next(self.first(), mean_returns={"": 0.0}, divergence=0.0, horizons={}, tasks=0)

    @property
    def uses_kl_reward(self) -> bool:
        """Whether the reward contains the divergence from the reference."""
        return self.kl_reward["kind"] != "none"

    def first(self) -> Memory:
        """Before the first step."""
        coef = self.kl_reward["coef"] if self.uses_kl_reward else 0.0
        return Memory({}, coef, {})

    def next(
        self,
        memory: Memory,
        *,
        mean_returns: Mapping[str, float],
        divergence: float | None,
        horizons: Mapping[Place, HorizonStatistics],
        tasks: int,
    ) -> Memory:
        """After a step.

        Args:
          memory: before it.
          mean_returns: Mean return of the valid episodes of each environment that had any.
          divergence: from the reference, nats per action token; None if not measured.
          horizons: statistics of the places of schedules that had tasks.
          tasks: how many it took from the order of the tasks.
        """
        expected_returns, kl_coef = dict(memory.expected_returns), memory.kl_coef
        if self.baseline["kind"] == "moving_average":
            for name, value in mean_returns.items():
                average = expected_returns[name] if name in expected_returns else None
                expected_returns[name] = controllers.moving_average(
                    average, value, decay=self.baseline["decay"]
                )
        if self.kl_reward["kind"] == "adaptive":
            target, rate = self.kl_reward["target"], self.kl_reward["rate"]
            kl_coef = controllers.adaptive_coefficient(
                kl_coef, divergence, target=target, rate=rate
            )
        return Memory(
            expected_returns,
            kl_coef,
            self.horizon.next(memory.horizons, horizons),
            memory.tasks_taken + tasks,
        )


def _check(name: str, section: Mapping[str, Any], kinds: Mapping[str, Sequence[str]]) -> None:
    options = dict(section)
    kind = options.pop("kind", None)
    if kind not in kinds:
        raise ValueError(f"{name}.kind={kind!r} is none of {', '.join(kinds)}")
    if set(options) != set(kinds[kind]):
        raise ValueError(
            f"{name}: kind={kind!r} takes {sorted(kinds[kind])}, got {sorted(options)}"
        )


def horizon_statistics(
    trajectories: Sequence[Trajectory], limits: Sequence[TurnLimit]
) -> dict[Place, HorizonStatistics]:
    """What the episodes of a step say about the schedules that their turn limits came from.

    Args:
      trajectories: of one step, task-major; failed ones are left out.
      limits: of every task; each has the same number of episodes.
    """
    group_size = len(trajectories) // len(limits)
    played: dict[Place, list[Trajectory]] = {}
    for i, trajectory in enumerate(trajectories):
        played.setdefault(limits[i // group_size].place, []).append(trajectory)
    turns = {limit.place: limit.turns for limit in limits}
    return {place: _statistics(of_one, turns[place]) for place, of_one in played.items()}


def _statistics(trajectories: Sequence[Trajectory], limit: int) -> HorizonStatistics:
    valid = [t for t in trajectories if t.outcome.is_valid]
    solved = [t for t in valid if t.success]
    return HorizonStatistics(
        success=len(solved) / len(valid) if valid else None,
        truncation=sum(t.outcome.is_truncated for t in valid) / len(valid) if valid else None,
        turns=sum(len(t.turns) for t in solved) / (len(solved) * limit) if solved else None,
    )
