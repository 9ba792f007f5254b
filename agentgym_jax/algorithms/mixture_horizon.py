"""Turn-limit schedules by environment, by group of tasks, and by random draw.

The limit of a task is a function of seed, step, task and the states of adaptive schedules. All
rollouts of a task therefore have the same limit, and an advantage can compare their returns.
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
    """Attributes of `data.tasks.Task` that a limit may depend on."""

    @property
    def environment(self) -> str:
        """Name of the environment."""

    @property
    def group(self) -> str:
        """Group of tasks of the environment."""

    @property
    def item_id(self) -> str:
        """Name of the task."""


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Key of a schedule in a mixture; the states of adaptive schedules are stored by place."""

    environment: str
    group: str = ""  # group of tasks; empty if all groups of the environment share one schedule
    drawn: str = ""  # name of the schedule in a `DrawnHorizon`; empty if the schedule was not drawn


@dataclasses.dataclass(frozen=True)
class TurnLimit:
    """Turn limit of the episodes of a task, and the place of the schedule that sets it."""

    place: Place
    turns: int


@dataclasses.dataclass(frozen=True)
class DrawnHorizon:
    """Schedules from which each task draws one at random at every step."""

    schedules: Mapping[str, HorizonSchedule]  # schedules by name
    weights: Mapping[str, int]  # relative frequency of each schedule by name

    def __post_init__(self) -> None:
        if set(self.schedules) != set(self.weights) or not self.schedules:
            raise ValueError(
                "a drawn horizon needs a weight for each of its schedules; got schedules "
                f"{sorted(self.schedules)} and weights {sorted(self.weights)}"
            )
        bad = {n: w for n, w in self.weights.items() if not isinstance(w, int) or w < 1}
        if bad:
            raise ValueError(
                f"a drawn horizon needs integer weights > 0 (3 and 1, not 0.75 and 0.25); got {bad}"
            )

    def draw(self, seed: int, step: int, item_id: str) -> str:
        """Returns the name of the schedule that a task draws at a step."""
        bounds = list(itertools.accumulate(self.weights.values()))
        digest = hashlib.sha256(f"{seed} {step} {item_id}".encode()).digest()
        drawn = int.from_bytes(digest, "big") % bounds[-1]
        return list(self.weights)[bisect.bisect_right(bounds, drawn)]


GroupHorizon = HorizonSchedule | DrawnHorizon


@dataclasses.dataclass(frozen=True)
class GroupHorizons:
    """Schedules of one environment by group of tasks; each group has separate adaptive states."""

    each: GroupHorizon  # schedule of the groups that are not in `groups`
    groups: Mapping[str, GroupHorizon]  # schedules by name of the group


EnvironmentHorizon = GroupHorizon | GroupHorizons


@dataclasses.dataclass(frozen=True)
class MixtureHorizon:
    """Turn-limit schedules of all environments, by name of the environment."""

    schedules: Mapping[str, EnvironmentHorizon]

    def __post_init__(self) -> None:
        if not self.schedules:
            raise ValueError("a mixture of horizons needs at least one environment; got none")

    def limits(
        self, tasks: Sequence[Task], step: int, states: Mapping[Place, HorizonState], *, seed: int
    ) -> list[TurnLimit]:
        """Returns the turn limit of every task in the step that follows `step` completed steps.

        An adaptive schedule without a state in `states` starts at its first limit.
        """
        limits = []
        for task in tasks:
            place = self._place(task, step, seed)
            schedule = self._schedule(place)
            if isinstance(schedule, AdaptiveHorizon):
                turns = schedule.limit(states.get(place, HorizonState()))
            else:
                turns = schedule(step)
            limits.append(TurnLimit(place, turns))
        return limits

    def next(
        self,
        states: Mapping[Place, HorizonState],
        statistics: Mapping[Place, HorizonStatistics],
    ) -> dict[Place, HorizonState]:
        """Returns the states of the adaptive schedules after a step with these statistics."""
        following = dict(states)
        for place, measured in statistics.items():
            schedule = self._schedule(place)
            if isinstance(schedule, AdaptiveHorizon):
                following[place] = schedule.next(states.get(place, HorizonState()), measured)
        return following

    def _place(self, task: Task, step: int, seed: int) -> Place:
        schedule = self.schedules[task.environment]
        group = drawn = ""
        if isinstance(schedule, GroupHorizons):
            group, schedule = task.group, schedule.groups.get(task.group, schedule.each)
        if isinstance(schedule, DrawnHorizon):
            drawn = schedule.draw(seed, step, task.item_id)
        return Place(task.environment, group, drawn)

    def _schedule(self, place: Place) -> HorizonSchedule:
        schedule = self.schedules[place.environment]
        if isinstance(schedule, GroupHorizons):
            schedule = schedule.groups.get(place.group, schedule.each)
        return schedule.schedules[place.drawn] if isinstance(schedule, DrawnHorizon) else schedule
