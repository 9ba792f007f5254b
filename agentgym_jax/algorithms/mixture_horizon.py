"""Which schedule a task's turn limit comes from: that of its environment, its group, or one drawn.

A run has one schedule per environment (`MixtureHorizon`). It may hold one per group of tasks, such
as a level (`GroupHorizons`), and a schedule, of an environment or of a group, may be several among
which every task draws (`DrawnHorizon`). What is left in the end is a schedule of `horizon.py`; its
`Place` says how it was reached, and what an adaptive one remembers is kept by place.

The limit of a task is a function of seed, step, task and states, so that all rollouts of a task
have the same one: advantages compare them.
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
    """What a limit may depend on (data/tasks.py)."""

    @property
    def environment(self) -> str:
        """Its environment."""

    @property
    def group(self) -> str:
        """Its group in the environment, such as a level."""

    @property
    def item_id(self) -> str:
        """Its name, in no other environment the same."""


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Where a schedule stands in a mixture.

    Attributes:
      environment: whose schedule it is.
      group: whose it is alone; empty if the groups share it.
      drawn: its name among several; empty if there is nothing to draw.
    """

    environment: str
    group: str = ""
    drawn: str = ""


@dataclasses.dataclass(frozen=True)
class TurnLimit:
    """How long the episodes of a task may be.

    Attributes:
      place: of the schedule that says so.
      turns: the limit.
    """

    place: Place
    turns: int


@dataclasses.dataclass(frozen=True)
class DrawnHorizon:
    """Every task draws one of several schedules at every step, whatever the others draw.

    Attributes:
      schedules: by name.
      weights: name -> how often it is drawn, a whole number: 3 and 1 for three in four.
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
        """Name of the schedule that a task has at a step."""
        bounds = list(itertools.accumulate(self.weights.values()))
        digest = hashlib.sha256(f"{seed} {step} {item_id}".encode()).digest()
        return list(self.weights)[
            bisect.bisect_right(bounds, int.from_bytes(digest, "big") % bounds[-1])
        ]


GroupHorizon = HorizonSchedule | DrawnHorizon


@dataclasses.dataclass(frozen=True)
class GroupHorizons:
    """A schedule per group of tasks.

    Attributes:
      each: of every group that is not named. The groups do not share its state: if it adapts, it
        adapts to each of them apart.
      groups: of those that are.
    """

    each: GroupHorizon
    groups: Mapping[str, GroupHorizon]

    def of(self, group: str) -> GroupHorizon:
        """The schedule of a group."""
        return self.groups[group] if group in self.groups else self.each


EnvironmentHorizon = GroupHorizon | GroupHorizons


@dataclasses.dataclass(frozen=True)
class MixtureHorizon:
    """One schedule per environment.

    Attributes:
      schedules: by environment.
    """

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
        """Turn limit of every task.

        Args:
          tasks: of the step.
          step: Steps of the run done.
          states: of the adaptive schedules; one that is not there has not begun.
          seed: of the draws.
        """
        places = [self.place(task, step, seed=seed) for task in tasks]
        return [TurnLimit(place, self._turns(place, step, states)) for place in places]

    def place(self, task: Task, step: int, *, seed: int) -> Place:
        """Which schedule a task has at a step."""
        schedule = self.schedules[task.environment]
        group = drawn = ""
        if isinstance(schedule, GroupHorizons):
            group, schedule = task.group, schedule.of(task.group)
        if isinstance(schedule, DrawnHorizon):
            drawn = schedule.draw(seed, step, task.item_id)
        return Place(task.environment, group, drawn)

    def next(
        self,
        states: Mapping[Place, HorizonState],
        statistics: Mapping[Place, HorizonStatistics],
    ) -> dict[Place, HorizonState]:
        """States of the adaptive schedules after a step; one that had no task keeps its own.

        Args:
          states: before the step.
          statistics: of the episodes at each place.
        """
        following = dict(states)
        for place, measured in statistics.items():
            schedule = self._schedule(place)
            if isinstance(schedule, AdaptiveHorizon):
                following[place] = schedule.next(_state(states, place), measured)
        return following

    def _turns(self, place: Place, step: int, states: Mapping[Place, HorizonState]) -> int:
        schedule = self._schedule(place)
        if isinstance(schedule, AdaptiveHorizon):
            return schedule.limit(_state(states, place))
        return schedule(step)

    def _schedule(self, place: Place) -> HorizonSchedule:
        schedule = self.schedules[place.environment]
        if isinstance(schedule, GroupHorizons):
            schedule = schedule.of(place.group)
        return schedule.schedules[place.drawn] if isinstance(schedule, DrawnHorizon) else schedule


def _state(states: Mapping[Place, HorizonState], place: Place) -> HorizonState:
    return states[place] if place in states else HorizonState()
