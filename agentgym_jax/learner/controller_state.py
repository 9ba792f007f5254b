"""Controllers that adapt from step to step: baseline, KL coefficient, horizon, task position.

The next state is a pure function of the current state and the measurements of a step. The state is
part of every checkpoint, so a resumed run continues exactly.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.algorithms import controllers
from agentgym_jax.algorithms.horizon import HorizonState, HorizonStatistics
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon, Place, TurnLimit
from agentgym_jax.trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class ControllerState:
    """State of all controllers.

    Attributes:
      expected_returns: Baseline of the next step by environment; environments without an episode so
        far are absent.
      kl_coef: Coefficient of the divergence in the reward of the next step.
      horizons: State of every adaptive schedule that has started, by the schedule's place in the
        mixture.
      tasks_taken: Position of the next step in the order of the tasks.
    """

    expected_returns: Mapping[str, float]
    kl_coef: float
    horizons: Mapping[Place, HorizonState]
    tasks_taken: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the state as a JSON object; a row of `horizons` is a place and the state there."""
        rows = [
            dataclasses.asdict(place) | dataclasses.asdict(state)
            for place, state in sorted(self.horizons.items())
        ]
        return vars(self) | {"expected_returns": dict(self.expected_returns), "horizons": rows}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "ControllerState":
        """Converts a result of `to_json` back to a state."""
        fields = [field.name for field in dataclasses.fields(Place)]
        horizons = {}
        for row in record["horizons"]:
            state = {name: value for name, value in row.items() if name not in fields}
            horizons[Place(*(row[name] for name in fields))] = HorizonState(**state)
        return cls(record["expected_returns"], record["kl_coef"], horizons, record["tasks_taken"])


@dataclasses.dataclass(frozen=True)
class Controllers:
    """Rules of all controllers, constant during a run.

    Attributes:
      horizon: Turn limits.
      baseline: Baseline of the return by environment: kind `none`, or `moving_average` with its
        `decay`.
      kl_reward: Divergence from the reference in the reward: kind `none`, `fixed` with a `coef`, or
        `adaptive` with an initial `coef`, a `target` in nats per action token and a `rate`.

    Raises:
      ValueError: A kind or one of its options is unknown, missing or invalid.
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
        self.update(
            self.initial_state(), mean_returns={"": 0.0}, divergence=0.0, horizons={}, tasks=0
        )

    @property
    def uses_kl_reward(self) -> bool:
        """True if the divergence from the reference is part of the reward."""
        return self.kl_reward["kind"] != "none"

    def initial_state(self) -> ControllerState:
        """Returns the state before the first step."""
        coef = self.kl_reward["coef"] if self.uses_kl_reward else 0.0
        return ControllerState({}, coef, {})

    def update(
        self,
        state: ControllerState,
        *,
        mean_returns: Mapping[str, float],
        divergence: float | None,
        horizons: Mapping[Place, HorizonStatistics],
        tasks: int,
    ) -> ControllerState:
        """Returns the state after a step.

        Args:
          state: State before the step.
          mean_returns: Mean return of the valid episodes by environment; environments without a
            valid episode are absent.
          divergence: Divergence from the reference in nats per action token; None if not measured.
          horizons: Statistics of the schedules that had tasks in the step, by place.
          tasks: Number of tasks drawn in the step.
        """
        expected_returns, kl_coef = dict(state.expected_returns), state.kl_coef
        if self.baseline["kind"] == "moving_average":
            for name, value in mean_returns.items():
                expected_returns[name] = controllers.moving_average(
                    expected_returns.get(name), value, decay=self.baseline["decay"]
                )
        if self.kl_reward["kind"] == "adaptive":
            target, rate = self.kl_reward["target"], self.kl_reward["rate"]
            kl_coef = controllers.adaptive_coefficient(
                kl_coef, divergence, target=target, rate=rate
            )
        return ControllerState(
            expected_returns,
            kl_coef,
            self.horizon.next(state.horizons, horizons),
            state.tasks_taken + tasks,
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
    """Returns the statistics of a step's episodes, by the place of the schedule that set their turn
    limit.

    Episodes are task-major, and all tasks have the same number of episodes. Failed episodes are
    ignored.
    """
    group_size = len(trajectories) // len(limits)
    by_place: dict[Place, list[Trajectory]] = {}
    for i, trajectory in enumerate(trajectories):
        by_place.setdefault(limits[i // group_size].place, []).append(trajectory)
    turns = {limit.place: limit.turns for limit in limits}
    return {place: _statistics(group, turns[place]) for place, group in by_place.items()}


def _statistics(trajectories: Sequence[Trajectory], limit: int) -> HorizonStatistics:
    valid = [t for t in trajectories if t.outcome.is_valid]
    solved = [t for t in valid if t.success]
    return HorizonStatistics(
        success=len(solved) / len(valid) if valid else None,
        truncation=sum(t.outcome.is_truncated for t in valid) / len(valid) if valid else None,
        turns=sum(len(t.turns) for t in solved) / (len(solved) * limit) if solved else None,
    )
