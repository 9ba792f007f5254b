"""Mixture of schedules: each task has that of its environment or group, or a randomly drawn one.

A run has one schedule per environment (`MixtureHorizon`). An environment can have one schedule per
group of tasks, such as a level (`GroupHorizons`). The schedule of an environment or group can be a
set from which every task draws (`DrawnHorizon`). These choices lead to one schedule of
`horizon.py`. A `Place` records them, and the states of adaptive schedules are stored by place.

The limit of a task is a function of seed, step, task and states. All rollouts of a task therefore
have the same limit, without which an advantage could not compare their returns.
"""

import bisect
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgym_jax.algorithms.horizon import (
    AdaptiveHorizon,
    HorizonSchedule,
    HorizonState,
    HorizonStatistics,
)


class Task(Protocol):
    """Task attributes that a limit may depend on (data/tasks.py)."""

    @property
    def environment(self) -> str:
        """Returns the name of the environment."""

    @property
    def group(self) -> str:
        """Returns the group of tasks within the environment, such as a level."""

    @property
    def item_id(self) -> str:
        """Returns the id of the task, unique over all environments."""


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Position of a schedule in a mixture.

    Attributes:
      environment: Environment of the schedule.
      group: Group of tasks of the schedule; empty if all groups share one schedule.
      drawn: Name of the schedule within a `DrawnHorizon`; empty if the schedule was not drawn.
    """

    environment: str
    group: str = ""
    drawn: str = ""


@dataclasses.dataclass(frozen=True)
class TurnLimit:
    """Turn limit of the episodes of a task, and the place of the schedule that sets it."""

    place: Place
    turns: int


@dataclasses.dataclass(frozen=True)
class DrawnHorizon:
    """Set of schedules. At every step each task draws one of them, independently of other tasks.

    Attributes:
      schedules: Schedules by name.
      weights: Relative frequency of each schedule by name, a whole number. With 3 and 1, the first
          is drawn in three cases of four.
    """

    schedules: Mapping[str, HorizonSchedule]
    weights: Mapping[str, int]

    def __post_init__(self) -> None:
        if set(self.schedules) != set(self.weights) or not self.schedules:
            raise ValueError(
                "a drawn horizon needs a weight for each of its schedules; got schedules "
                f"{sorted(self.schedules)} and weights {sorted(self.weights)}"
            )
        bad = {n: w for n, w in self.weights.items() if not isinstance(w, int) or w < 1}
        if bad:
            raise ValueError(
                f"a drawn horizon needs whole weights of at least 1: write 3 and 1; got {bad}"
            )

    def draw(self, seed: int, step: int, item_id: str) -> str:
        """Returns the name of the schedule that a task draws at a step."""
        bounds = list(itertools.accumulate(self.weights.values()))
        digest = hashlib.sha256(f"{seed} {step} {item_id}".encode()).digest()
        return list(self.weights)[
            bisect.bisect_right(bounds, int.from_bytes(digest, "big") % bounds[-1])
        ]


GroupHorizon = HorizonSchedule | DrawnHorizon


@dataclasses.dataclass(frozen=True)
class GroupHorizons:
    """Schedules of one environment by group of tasks.

    Attributes:
      each: Schedule of every group without an entry in `groups`. An adaptive schedule has a
        separate state for each group.
      groups: Schedules by name of the group.
    """

    each: GroupHorizon
    groups: Mapping[str, GroupHorizon]

    def schedule_for(self, group: str) -> GroupHorizon:
        """Returns the schedule of a group."""
        return self.groups.get(group, self.each)


EnvironmentHorizon = GroupHorizon | GroupHorizons


@dataclasses.dataclass(frozen=True)
class MixtureHorizon:
    """One schedule per environment."""

    schedules: Mapping[str, EnvironmentHorizon]

    def __post_init__(self) -> None:
        if not self.schedules:
            raise ValueError("a mixture of horizons needs at least one environment; got none")

    def limits(
        self,
        tasks: Sequence[Task],
        step: int,
        states: Mapping[Place, HorizonState],
        *,
        seed: int,
    ) -> list[TurnLimit]:
        """Returns the turn limit of every task after `step` steps.

        An adaptive schedule without a state in `states` starts at its first limit.
        """
        places = [self.place(task, step, seed=seed) for task in tasks]
        return [TurnLimit(place, self._turns(place, step, states)) for place in places]

    def place(self, task: Task, step: int, *, seed: int) -> Place:
        """Returns the place of a task's schedule at a step."""
        schedule = self.schedules[task.environment]
        group = drawn = ""
        if isinstance(schedule, GroupHorizons):
            group, schedule = task.group, schedule.schedule_for(task.group)
        if isinstance(schedule, DrawnHorizon):
            drawn = schedule.draw(seed, step, task.item_id)
        return Place(task.environment, group, drawn)

    def next(
        self,
        states: Mapping[Place, HorizonState],
        statistics: Mapping[Place, HorizonStatistics],
    ) -> dict[Place, HorizonState]:
        """Returns the states of the adaptive schedules after a step; a schedule without statistics
        in this step keeps its state.
        """
        following = dict(states)
        for place, measured in statistics.items():
            schedule = self._schedule(place)
            if isinstance(schedule, AdaptiveHorizon):
                following[place] = schedule.next(states.get(place, HorizonState()), measured)
        return following

    def _turns(self, place: Place, step: int, states: Mapping[Place, HorizonState]) -> int:
        schedule = self._schedule(place)
        if isinstance(schedule, AdaptiveHorizon):
            return schedule.limit(states.get(place, HorizonState()))
        return schedule(step)

    def _schedule(self, place: Place) -> HorizonSchedule:
        schedule = self.schedules[place.environment]
        if isinstance(schedule, GroupHorizons):
            schedule = schedule.schedule_for(place.group)
        return schedule.schedules[place.drawn] if isinstance(schedule, DrawnHorizon) else schedule
