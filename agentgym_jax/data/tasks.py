"""Selects the tasks of a run and of each step; the results depend only on the arguments."""

import collections
import dataclasses
import functools
import heapq
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from agentgym_jax.checks.limits import Range
from agentgym_jax.data import suite
from agentgym_jax.data.rows import Bad, field, read_rows
from agentgym_jax.runs.run_folder import visible

_MOST_DIGITS = 18  # of an index; Python refuses to read numbers with thousands of digits


@dataclasses.dataclass(frozen=True)
class Task:
    """Task of an environment."""

    environment: str
    data_idx: int  # index of the task in its environment
    group: str  # group of the task in reports, such as a level

    @property
    def item_id(self) -> str:
        """Returns AgentGym's name of the task."""
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
    """Returns the tasks in [start, stop) whose index modulo `modulus` is the value of a group.

    For BabyAI, the level is `data_idx % 40` and the seed is `data_idx // 40`. With `modulus=40` the
    groups select levels, and `start` and `stop` select seeds.
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
    """Returns the tasks in one split of the server's manifest.

    The fact (manifest field) `group_by` is a task's group. `where` has accepted values, such as
    `{"depth": (1, 2)}`. At most `limit` tasks are selected, evenly spread; 0 selects all.
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
    found = []
    for task in _evenly(chosen, limit):
        fact = task[group_by]
        group = fact if isinstance(fact, str) else f"{group_by} {fact}"
        found.append(Task(environment, task["data_idx"], group))
    return found


def _evenly(items: list[Any], limit: int) -> list[Any]:
    """Returns at most `limit` items, evenly spread; all items if `limit` is 0."""
    if not 0 < limit < len(items):
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, limit).round().astype(int)]


def from_file(
    environment: str, manifest: Sequence[Mapping[str, Any]], *, path: str, bad: Bad = "fatal"
) -> list[Task]:
    """Returns the tasks listed in a file: rows with an `item_id`, or a JSON list of ids.

    A row can name the task's `group`; the default is the environment. `path` can also be a
    trajectory file or a run folder. A task listed twice is selected once, with its first group.
    """

    def parse(row: Any, place: str) -> Task:
        task = _parse_task(row, place)
        if task.environment != environment:
            raise ValueError(
                f"{place}: field 'item_id': {task.item_id!r} is not a task of {environment}"
            )
        return task

    found: dict[int, Task] = {}
    for task in read_rows(path, parse, bad=bad, what="task"):
        found.setdefault(task.data_idx, task)
    return list(found.values())


def _parse_task(row: Any, place: str) -> Task:
    row = row if isinstance(row, Mapping) else {"item_id": str(row)}
    item_id = field(row, "item_id", str, place)
    name, _, index = canonical_item_id(item_id).rpartition("_")
    if not index.isdecimal() or len(index) > _MOST_DIGITS:
        raise ValueError(f"{place}: field 'item_id': {item_id!r:.200} is not NAME_NUMBER")
    group = field(row, "group", str, place) if "group" in row else name
    return Task(name, int(index), group)


def from_item_files(
    environment: str, manifest: Sequence[Mapping[str, Any]], *, path: str
) -> list[Task]:
    """Returns the tasks of an environment in a folder of item ids, as AgentGym-RL publishes them.

    The folder has `.json` files of ids, at any depth and of any environments. A task can be in a
    file of its category and in one of its environment; the file with fewer of the environment's
    tasks is its group.
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"tasks of {environment}: {path} is no folder of item ids")
    files = {
        file: read_rows(file, _parse_task, bad="fatal", what="task")
        for file in visible(folder.rglob("*.json"))
    }
    own = {
        file: [task for task in tasks if task.environment == environment]
        for file, tasks in files.items()
    }
    found: dict[int, Task] = {}
    for file in sorted(own, key=lambda file: len(own[file])):
        for task in own[file]:
            group = file.stem.removeprefix(f"{environment}_")
            found.setdefault(task.data_idx, dataclasses.replace(task, group=group))
    if not found:
        names = sorted({task.environment for tasks in files.values() for task in tasks})
        raise ValueError(
            f"tasks of {environment}: the {len(files)} .json files of {path} have none; their "
            f"tasks are of {', '.join(names[:10]) or 'no environment'}"
        )
    return sorted(found.values(), key=lambda task: (task.group, task.data_idx))


def from_suite(
    environment: str,
    manifest: Sequence[Mapping[str, Any]],
    *,
    subtasks: Sequence[str],
    limit: Annotated[int, Range(0)],
) -> list[Task]:
    """Returns the test items of the suite of 27 tasks (data/suite.py), grouped by sub-task.

    `subtasks` is empty for all. `limit` is the maximum number of items per sub-task; 0 for all.
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
    """Removes the prefix `lmrlgym_`, which AgentGym adds to the ids of its two text games."""
    return item_id.removeprefix("lmrlgym_")


SELECTIONS: Mapping[str, Callable[..., list[Task]]] = {
    "residues": from_residues,
    "split": from_split,
    "suite": from_suite,
    "file": from_file,
    "items": from_item_files,
}


def select(
    environment: str, manifest: Sequence[Mapping[str, Any]], *, kind: str, **options: Any
) -> list[Task]:
    """Returns the tasks that the function `SELECTIONS[kind]` selects."""
    return SELECTIONS[kind](environment, manifest, **options)


def count_earlier(tasks: Sequence[Task]) -> list[int]:
    """Returns for each place of a sequence how often its task occurs at earlier places."""
    seen: collections.Counter[Task] = collections.Counter()
    counts = []
    for task in tasks:
        counts.append(seen[task])
        seen[task] += 1
    return counts


def group_label(environment: str, group: str, *, is_mixture: bool) -> str:
    """Returns the name of a task group in reports; with several environments it includes theirs.

    Names of metrics contain it, so it has no slash and is not empty.
    """
    group = group.replace("/", "-") or environment
    return f"{environment} {group}" if is_mixture and group != environment else group


class _Cycle:
    """Endless cycle that contains each name `counts[name]` times, as evenly as possible.

    Among the first p positions, a name has p * count / total draws, rounded up or down. The method
    is earliest deadline first: draw k of a name (from 0) is possible once this number reaches k,
    and its deadline is when this number reaches k + 1.
    """

    def __init__(self, counts: Mapping[str, int]):
        self._counts = {name: count for name, count in counts.items() if count}
        total = sum(self._counts.values())
        # Equal quotients are equal floats, so the name listed first wins a tie.
        waiting = sorted(
            (k * total // count, (k + 1) / count, order, k, name)
            for order, (name, count) in enumerate(self._counts.items())
            for k in range(count)
        )
        due: list[tuple[float, int, int, str]] = []
        self.places: list[tuple[int, str]] = []  # number of earlier draws of the name, and the name
        released = 0
        for place in range(total):
            while released < total and waiting[released][0] <= place:
                heapq.heappush(due, waiting[released][1:])
                released += 1
            self.places.append(heapq.heappop(due)[2:])

    def draw(self, position: int) -> tuple[str, int]:
        """Returns the name at a position and the number of earlier positions with the same name."""
        rounds, place = divmod(position, len(self.places))
        earlier, name = self.places[place]
        return name, rounds * self._counts[name] + earlier


class TaskSchedule:
    """Tasks of one environment in a fixed order, so that a position determines its task.

    Task groups are spread evenly. Within a group, all tasks are drawn once, in an order that
    depends on the seed, before a task is drawn again.
    """

    def __init__(self, tasks: Sequence[Task], weights: Mapping[str, int], *, seed: int):
        """Sorts the tasks into groups; the default weight of a group is its number of tasks."""
        self._groups: dict[str, list[Task]] = {}
        for task in tasks:
            self._groups.setdefault(task.group, []).append(task)
        unknown = sorted(set(weights) - set(self._groups))
        if unknown:
            raise ValueError(f"task weights name groups {unknown}; there are {list(self._groups)}")
        sizes = {name: len(group) for name, group in self._groups.items()}
        self._cycle = _Cycle(sizes | dict(weights))
        if not self._cycle.places:
            raise ValueError("there are no tasks to draw from")
        self._seed = seed

    def task(self, position: int) -> Task:
        """Returns the task at a position; positions start at 0 and have no upper limit."""
        name, draw = self._cycle.draw(position)
        tasks = self._groups[name]
        epoch, index = divmod(draw, len(tasks))
        return tasks[_order(self._seed, name, epoch, len(tasks))[index]]


class MixtureSchedule:
    """Tasks of several environments in a fixed order, so that a position determines its task.

    Environments alternate in an evenly spread cycle. The share of an environment depends on its
    weight, not on its number of tasks. Its order of tasks depends only on its schedule.
    """

    def __init__(self, schedules: Mapping[str, TaskSchedule], weights: Mapping[str, int]):
        """Computes the cycle of environments, given their draws per cycle."""
        self._schedules = dict(schedules)
        self._cycle = _Cycle(weights)

    def at(self, step: int, count: int) -> list[Task]:
        """Returns the `count` tasks of a step; the first step is 0."""
        return self.drawn(step * count, count)

    def drawn(self, position: int, count: int) -> list[Task]:
        """Returns `count` tasks, starting at a position; the first position is 0."""
        draws = map(self._cycle.draw, range(position, position + count))
        return [self._schedules[name].task(draw) for name, draw in draws]


@functools.lru_cache(maxsize=64)
def _order(seed: int, group: str, epoch: int, n: int) -> np.ndarray:
    """Returns a permutation of the numbers below n that depends only on the arguments."""
    words = [seed, epoch, *group.encode()]
    return np.random.default_rng(words).permutation(n)
