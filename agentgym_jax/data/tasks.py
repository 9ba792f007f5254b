"""Which tasks a run uses, and which of them belong to a step: pure functions of numbers."""

import dataclasses
import fractions
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.data import suite
from agentgym_jax.data.rows import Bad, field, read_rows


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of an environment.

    Attributes:
      environment: its name.
      data_idx: index of the task there.
      group: what it is reported under, such as a level.
    """

    environment: str
    data_idx: int
    group: str

    @property
    def item_id(self) -> str:
        """AgentGym's name of the task."""
        return f"{self.environment}_{self.data_idx}"


def from_residues(
    environment: str,
    manifest: Sequence[Mapping[str, Any]],
    *,
    start: int,
    stop: int,
    modulus: int,
    groups: Mapping[str, int],
) -> list[Task]:
    """Indices of [start, stop) whose remainder is that of a group.

    BabyAI's level is `data_idx % 40` and the seed `data_idx // 40`, so `modulus=40` chooses
    levels, and `start` and `stop` choose seeds. The manifest is not read.

    Args:
      environment: its name.
      manifest: the server's task list.
      start: first index.
      stop: index after the last.
      modulus: number of kinds that alternate.
      groups: name of a group -> its remainder.
    """
    bad = {name: r for name, r in groups.items() if not 0 <= r < modulus}
    if bad or not groups:
        raise ValueError(f"tasks of {environment}: groups {bad or groups} need 0 <= r < {modulus}")
    names = {r: name for name, r in groups.items()}
    if len(names) < len(groups):
        raise ValueError(f"tasks of {environment}: two groups share a remainder: {dict(groups)}")
    return [
        Task(environment, i, names[i % modulus]) for i in range(start, stop) if i % modulus in names
    ]


def from_split(
    environment: str,
    manifest: Sequence[Mapping[str, Any]],
    *,
    split: str,
    group_by: str,
    where: Mapping[str, Sequence[Any]],
    limit: int,
) -> list[Task]:
    """Tasks of one split of the server's manifest.

    Args:
      environment: its name.
      manifest: the server's task list (`GET /tasks`).
      split: `train` or `test`.
      group_by: fact of a task that names its group, such as `depth`.
      where: fact -> values that are kept, such as `{"depth": (1, 2)}`; empty keeps all.
      limit: at most so many, evenly spread; 0 for all.
    """
    facts = set(manifest[0]) if manifest else set()
    unknown = {group_by, *where} - facts
    if unknown:
        raise ValueError(
            f"tasks of {environment}: the manifest has no fact {sorted(unknown)[0]!r}; it has "
            f"{sorted(facts)}"
        )
    chosen = [
        task
        for task in manifest
        if task["split"] == split and all(task[fact] in values for fact, values in where.items())
    ]
    if not chosen:
        raise ValueError(
            f"tasks of {environment}: the manifest has none of split {split!r} where {dict(where)}"
        )
    chosen = _evenly(chosen, limit)
    return [Task(environment, t["data_idx"], _group_name(group_by, t[group_by])) for t in chosen]


def _evenly(items: list[Any], limit: int) -> list[Any]:
    """At most `limit` of the items, evenly spread; all of them if it is 0."""
    if not 0 < limit < len(items):
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, limit).round().astype(int)]


def _group_name(fact: str, value: Any) -> str:
    """`GoTo` for a fact that is a word, `depth 2` for one that is a number."""
    return value if isinstance(value, str) else f"{fact} {value}"


def from_file(
    environment: str, manifest: Sequence[Mapping[str, Any]], *, path: str, bad: Bad = "fatal"
) -> list[Task]:
    """Tasks listed in AgentGym's form: rows with an `item_id`, or, in JSON, the ids alone.

    Other fields are not read, so that a trajectory file or a run folder names tasks as well; a
    task that comes several times is one.

    Args:
      environment: its name.
      manifest: not read.
      path: a file or folder of any format of `data/rows.py`.
      bad: what a row that names no task of this environment does: `fatal` or `skip`.
    """

    def parse(row: Any, place: str) -> Task:
        item_id = field(row, "item_id", str, place) if isinstance(row, Mapping) else row
        name, _, index = canonical_item_id(str(item_id)).rpartition("_")
        if name != environment or not index.isdecimal():
            raise ValueError(
                f"{place}: field 'item_id': {item_id!r} is not a task of {environment}"
            )
        return Task(environment, int(index), environment)

    tasks, _ = read_rows(path, parse, bad=bad, what="task")
    return list(dict.fromkeys(tasks))


def from_suite(
    environment: str,
    manifest: Sequence[Mapping[str, Any]],
    *,
    subtasks: Sequence[str],
    limit: int,
) -> list[Task]:
    """The test items of the suite of 27 tasks (data/suite.py), grouped by sub-task.

    Args:
      environment: its name.
      manifest: the server's task list; must have the tasks that these sub-tasks are pinned to.
      subtasks: names of those that are kept; empty keeps all.
      limit: at most so many of each sub-task, evenly spread; 0 for all.
    """
    pinned = suite.pinned(environment)
    unknown = sorted(set(subtasks) - set(pinned))
    if unknown:
        raise ValueError(
            f"tasks of {environment}: the suite has no sub-task {unknown[0]!r}; it has "
            f"{', '.join(pinned)}"
        )
    suite.check_pinned(environment, manifest, subtasks)
    served = suite.by_number(environment, manifest)
    return [
        Task(environment, served[number]["data_idx"], name)
        for name in pinned
        if not subtasks or name in subtasks
        for number in _evenly(list(pinned[name]), limit)
    ]


def canonical_item_id(item_id: str) -> str:
    """AgentGym's id with the environment's own name: its two text games share a prefix."""
    return item_id.removeprefix("lmrlgym_")


SELECTIONS: Mapping[str, Callable[..., list[Task]]] = {
    "residues": from_residues,
    "split": from_split,
    "suite": from_suite,
    "file": from_file,
}


def select(
    environment: str, manifest: Sequence[Mapping[str, Any]], *, kind: str, **options: Any
) -> list[Task]:
    """Tasks chosen by one of SELECTIONS."""
    if kind not in SELECTIONS:
        raise ValueError(f"tasks of {environment}: kind {kind!r} is none of {sorted(SELECTIONS)}")
    return SELECTIONS[kind](environment, manifest, **options)


def group_label(environment: str, group: str, *, is_mixture: bool) -> str:
    """What a group is reported as: in a mixture two environments may use the same name."""
    return f"{environment} {group}" if is_mixture and group != environment else group


@dataclasses.dataclass(frozen=True)
class _Cycle:
    """An endless repetition of some names."""

    names: tuple[str, ...]

    def draw(self, position: int) -> tuple[str, int]:
        """Whose turn a position is, and how often the same name came before it."""
        rounds, place = divmod(position, len(self.names))
        name = self.names[place]
        return name, rounds * self.names.count(name) + self.names[:place].count(name)


def _round_by_round(places: Mapping[str, int]) -> _Cycle:
    """Each name once, then again those that have places left: a short step sees every name."""
    most = max(places.values(), default=0)
    return _Cycle(tuple(name for turn in range(most) for name in places if turn < places[name]))


def _evenly_spread(weights: Mapping[str, int]) -> _Cycle:
    """A cycle with these proportions in which no name gets ahead or falls behind.

    After any number of places a name has come its share of times, rounded up or down: a place
    goes to that name which must come soonest, among those that have not had their share rounded up.
    """
    places = {name: weight for name, weight in weights.items() if weight}
    total = sum(places.values())
    came = dict.fromkeys(places, 0)
    names = []
    for place in range(1, total + 1):
        behind = [name for name in places if came[name] * total < place * places[name]]
        name = min(behind, key=lambda name: fractions.Fraction(came[name] + 1, places[name]))
        came[name] += 1
        names.append(name)
    return _Cycle(tuple(names))


class TaskSchedule:
    """Tasks of one environment in a fixed order: which one comes is a function of its position.

    Groups alternate in a fixed cycle, each as often as its weight says; within a group every
    task comes once before any comes again, in an order drawn from the seed.
    """

    def __init__(self, tasks: Sequence[Task], weights: Mapping[str, int], *, seed: int):
        """Sorts the tasks into groups.

        Args:
          tasks: to be drawn from.
          weights: group -> places in the cycle; a group that is not named has one.
          seed: of the order.
        """
        self._groups: dict[str, list[Task]] = {}
        for task in tasks:
            self._groups.setdefault(task.group, []).append(task)
        unknown = sorted(set(weights) - set(self._groups))
        if unknown:
            raise ValueError(f"task weights name groups {unknown}; there are {list(self._groups)}")
        self._cycle = _round_by_round(dict.fromkeys(self._groups, 1) | dict(weights))
        if not self._cycle.names:
            raise ValueError("there are no tasks to draw from")
        self._seed = seed

    def task(self, position: int) -> Task:
        """The task at a position; positions count from 0 and have no end."""
        name, draw = self._cycle.draw(position)
        tasks = self._groups[name]
        epoch, index = divmod(draw, len(tasks))
        return tasks[_order(self._seed, name, epoch, len(tasks))[index]]


class MixtureSchedule:
    """Tasks of every step, as a function of the step: resuming cannot disagree with running on.

    Environments alternate in a fixed cycle, evenly spread, each as often as its weight says.
    Within an environment the tasks come in the order in which they would come alone, so that
    another weight or another environment beside it changes when a task comes, never which is next.
    """

    def __init__(self, schedules: Mapping[str, TaskSchedule], weights: Mapping[str, int]):
        """Fixes the cycle.

        Args:
          schedules: environment -> its tasks.
          weights: environment -> places in the cycle; those with 0 never come.
        """
        if set(schedules) != {name for name, weight in weights.items() if weight > 0}:
            raise ValueError(f"schedules of {list(schedules)} do not fit weights {dict(weights)}")
        if not schedules:
            raise ValueError("there are no tasks to draw from: every environment has weight 0")
        self._schedules = dict(schedules)
        self._cycle = _evenly_spread(weights)

    def at(self, step: int, count: int) -> list[Task]:
        """The `count` tasks of a step; steps count from 0."""
        return self.drawn(step * count, count)

    def drawn(self, position: int, count: int) -> list[Task]:
        """The `count` tasks from a position on; positions count from 0."""
        return [self._task(i) for i in range(position, position + count)]

    def _task(self, position: int) -> Task:
        name, draw = self._cycle.draw(position)
        return self._schedules[name].task(draw)


@functools.lru_cache(maxsize=64)
def _order(seed: int, group: str, epoch: int, n: int) -> np.ndarray:
    """A permutation of n, fixed by its arguments."""
    words = [seed, epoch, *group.encode()]
    return np.random.default_rng(words).permutation(n)
