"""Controllers that adapt from step to step: baseline, KL coefficient, horizon, curriculum.

Checkpoints contain the state. The next state is a pure function of the state and of measurements.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.algorithms import controllers
from agentgym_jax.algorithms.horizon import HorizonState, HorizonStatistics
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon, Place, TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.learner.curriculum import AllTasks, Curriculum, Results


@dataclasses.dataclass(frozen=True)
class ControllerState:
    """State of all controllers before a step."""

    expected_returns: Mapping[str, float]  # moving average of the return by environment
    kl_coef: float  # coefficient of the KL penalty in the reward
    horizons: Mapping[Place, HorizonState]  # states of the adaptive schedules that have started
    tasks_taken: int = 0  # number of tasks taken from the schedule before the step
    results: Results = dataclasses.field(default_factory=dict)  # results that the curriculum uses

    def to_json(self) -> dict[str, Any]:
        """Returns the state as a JSON object; `horizons` is a list of places with their states."""
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
            place = Place(**{name: row[name] for name in fields})
            state = {name: value for name, value in row.items() if name not in fields}
            horizons[place] = HorizonState(**state)
        results = {name: tuple(pair) for name, pair in record.get("results", {}).items()}
        return cls(**{**record, "horizons": horizons, "results": results})


@dataclasses.dataclass(frozen=True)
class Controllers:
    """Rules of all controllers, constant during a run.

    Attributes:
      horizon: Schedules of the turn limit.
      baseline: Baseline of the return: kind `none`, or `moving_average` with `decay`.
      kl_reward: KL penalty in the reward: kind `none`, `fixed` with `coef`, or `adaptive` with an
        initial `coef`, a `target` in nats per action token and a `rate`.
      curriculum: Choice of the tasks of a step.
    """

    horizon: MixtureHorizon
    baseline: Mapping[str, Any]
    kl_reward: Mapping[str, Any]
    curriculum: Curriculum = AllTasks()

    def __post_init__(self) -> None:
        kinds = {"none": (), "moving_average": ("decay",)}
        controllers.check_options("baseline", self.baseline, kinds)
        kinds = {"none": (), "fixed": ("coef",), "adaptive": ("coef", "target", "rate")}
        controllers.check_options("kl_reward", self.kl_reward, kinds)
        if self.uses_kl_reward and self.kl_reward["coef"] <= 0:
            raise ValueError(f"kl_reward needs a positive coef; got {self.kl_reward['coef']}")
        first = self.initial_state()  # the call below checks the values of the options
        self.update(first, mean_returns={"": 0.0}, divergence=0.0, horizons={}, tasks_taken=0)

    @property
    def uses_kl_reward(self) -> bool:
        """Returns True if the divergence from the reference is part of the reward."""
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
        tasks_taken: int,
        tasks: Sequence[Task] = (),
        trajectories: Sequence[Trajectory] = (),
    ) -> ControllerState:
        """Returns the state after a step that took `tasks_taken` tasks from the schedule.

        `mean_returns` has the mean return of each environment with a valid episode. `divergence` is
        the divergence from the reference in nats per action token; None if unknown. `horizons` has
        the statistics of the schedules that had tasks in the step. `trajectories` are those of
        `tasks`, task-major.
        """
        expected_returns, kl_coef = dict(state.expected_returns), state.kl_coef
        if self.baseline["kind"] == "moving_average":
            decay = self.baseline["decay"]
            for name, value in mean_returns.items():
                average = expected_returns.get(name)
                average = controllers.moving_average(average, value, decay=decay)
                if average is not None:  # None if neither is known
                    expected_returns[name] = average
        if self.kl_reward["kind"] == "adaptive":
            target, rate = self.kl_reward["target"], self.kl_reward["rate"]
            kl_coef = controllers.adaptive_coefficient(
                kl_coef, divergence, target=target, rate=rate
            )
        following = self.horizon.next(state.horizons, horizons)
        results = state.results
        if tasks:
            results = self.curriculum.update(results, tasks, trajectories)
        taken = state.tasks_taken + tasks_taken
        return ControllerState(expected_returns, kl_coef, following, taken, results)


def horizon_statistics(
    trajectories: Sequence[Trajectory], limits: Sequence[TurnLimit]
) -> dict[Place, HorizonStatistics]:
    """Returns the statistics of the valid episodes by the place of their schedule.

    Episodes are task-major; `limits` has the turn limit of each task.
    """
    group_size = len(trajectories) // len(limits)
    statistics = {}
    for place, turns in {limit.place: limit.turns for limit in limits}.items():
        own = [t for i, t in enumerate(trajectories) if limits[i // group_size].place == place]
        valid = [t for t in own if t.outcome.is_valid]
        solved = [t for t in valid if t.success]
        statistics[place] = HorizonStatistics(
            success=len(solved) / len(valid) if valid else None,
            truncation=sum(t.outcome.is_truncated for t in valid) / len(valid) if valid else None,
            turns=sum(len(t.turns) for t in solved) / (len(solved) * turns) if solved else None,
        )
    return statistics
