"""Which tasks a run uses, and which of them belong to a step: pure functions of numbers."""

import dataclasses
import functools
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from agentgym_jax.data import suite
from agentgym_jax.data.rows import Bad, field, read_rows
from agentgym_jax.limits import Range


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
    start: Annotated[int, Range(0)],
    stop: Annotated[int, Range(1)],
    modulus: Annotated[int, Range(1)],
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
    limit: Annotated[int, Range(0)],
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
            f"tasks of {environment}: the manifest has none of split {split!r} where "
            f"{dict(where)}; its splits are {', '.join(sorted({t['split'] for t in manifest}))}"
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
    limit: Annotated[int, Range(0)],
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
    """An endless repetition of a finite sequence of names.

    Attributes:
      names: Name at each place of the sequence.
      earlier: Number of earlier places that have the same name.
      counts: Number of places of each name.
    """

    names: tuple[str, ...]
    earlier: tuple[int, ...]
    counts: Mapping[str, int]

    def draw(self, position: int) -> tuple[str, int]:
        """Returns the name at a position and the number of earlier positions that have it."""
        rounds, place = divmod(position, len(self.names))
        name = self.names[place]
        return name, rounds * self.counts[name] + self.earlier[place]


def _evenly_spread(counts: Mapping[str, int]) -> _Cycle:
    """Returns a cycle that has each name `counts[name]` times, as evenly as possible.

    After any number of places, each name has been drawn its exact share of times, rounded up or
    down. Earliest deadline first: draw k of a name (from 0) is due when its share passes from k
    to k + 1, and each place goes to the draw that is due first.
    """
    counts = {name: count for name, count in counts.items() if count}
    total = sum(counts.values())
    # Quotients of equal value are equal floats, so a tie goes to the name that was given first.
    waiting = sorted(
        (k * total // count, (k + 1) / count, order, k, name)
        for order, (name, count) in enumerate(counts.items())
        for k in range(count)
    )
    due: list[tuple[float, int, int, str]] = []
    drawn = []
    released = 0
    for place in range(total):
        while released < total and waiting[released][0] <= place:
            heapq.heappush(due, waiting[released][1:])
            released += 1
        drawn.append(heapq.heappop(due)[2:])
    earlier, names = zip(*drawn, strict=True) if drawn else ((), ())
    return _Cycle(names, earlier, counts)


class TaskSchedule:
    """Tasks of one environment in a fixed order; the task at a position is a pure function of it.

    By default every task is drawn equally often: an epoch has each task once, in an order that
    depends on the seed, with the groups spread evenly. Weights draw groups more or less often.
    Within a group, every task is drawn once before any is drawn again.
    """

    def __init__(self, tasks: Sequence[Task], weights: Mapping[str, int], *, seed: int):
        """Sorts the tasks into groups.

        Args:
          tasks: Tasks to draw from.
          weights: Group -> draws per cycle, 0 to leave it out. A group that is not named has as
            many draws as tasks.
          seed: Random seed of the order.

        Raises:
          ValueError: There are no tasks, or a weight names no group or is no count.
        """
        self._groups: dict[str, list[Task]] = {}
        for task in tasks:
            self._groups.setdefault(task.group, []).append(task)
        unknown = sorted(set(weights) - set(self._groups))
        if unknown:
            raise ValueError(f"task weights name groups {unknown}; there are {list(self._groups)}")
        for name, weight in weights.items():
            if not isinstance(weight, int) or weight < 0:
                raise ValueError(f"task weight of {name!r} is {weight!r}, expected 0, 1, 2, ...")
        sizes = {name: len(group) for name, group in self._groups.items()}
        self._cycle = _evenly_spread(sizes | dict(weights))
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

    Environments alternate in a fixed cycle, evenly spread, each with the draws of its weight and
    not of its number of tasks. The order within an environment is that of training on it alone:
    weights and other environments change when its tasks are drawn, not their order.
    """

    def __init__(self, schedules: Mapping[str, TaskSchedule], weights: Mapping[str, int]):
        """Fixes the cycle.

        Args:
          schedules: environment -> its tasks.
          weights: Environment -> draws per cycle; 0 to leave it out.
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
