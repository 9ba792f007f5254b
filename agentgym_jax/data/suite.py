"""The 27 sub-tasks of AgentGym-RL (arXiv:2509.08755) and their items (selected tasks).

Facts (fields of a task manifest) define a sub-task. `suite_items/` lists the items, each with a
digest of its facts; servers with other tasks are refused. `choose` selected the items, because the
licence of the paper's item ids (data set AgentGym/AgentGym-RL-Data-ID) is not free.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]

# One file per environment with one line per sub-task: `number:mark` of every item. The items are those
# of `choose` for manifests, for SearchQA for the sizes of its data sets, and for WebArena for the 730
# tasks on one site that need no judge (a language model).
PINNED: Mapping[str, str] = {
    path.stem: path.read_text(encoding="ascii")
    for path in (pathlib.Path(__file__).parent / "suite_items").glob("*.txt")
}


@dataclasses.dataclass(frozen=True)
class SubTask:
    """One of the 27 sub-tasks."""

    name: str  # name of the sub-task in reports
    test_items: int  # number of items in the paper's table
    # Accepted values of each manifest fact; empty if no manifest has such facts.
    where: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def holds(self, facts: Facts) -> bool:
        """Returns True if a task with these facts belongs to the sub-task."""
        return bool(self.where) and all(
            fact in facts and facts[fact] in values for fact, values in self.where.items()
        )


@dataclasses.dataclass(frozen=True)
class SuiteEnvironment:
    """Sub-tasks of the suite in one environment."""

    max_turns: int  # turn limit in the released evaluation scripts
    subtasks: tuple[SubTask, ...]  # sub-tasks in the order of reports
    # fact whose values the items cover evenly; if empty, items are spread evenly over indices
    spread: str = ""
    # facts that identify an item if the user supplies the data; if empty, all facts identify it
    identity: tuple[str, ...] = ()
    # fact that numbers the items; `data_idx` changes if a server leaves tasks out
    number: str = "data_idx"


def _read_suite() -> dict[str, SuiteEnvironment]:
    """Returns the environments of suite.toml."""
    text = pathlib.Path(__file__).with_name("suite.toml").read_text(encoding="utf-8")
    found = {}
    for name, entry in tomllib.loads(text).items():
        fact, where = entry.pop("fact"), {k: tuple(v) for k, v in entry.pop("where", {}).items()}
        subtasks = tuple(
            SubTask(subtask, items, {fact: tuple(values)} | where)
            for subtask, (items, *values) in entry.pop("subtasks").items()
        )
        identity = tuple(entry.pop("identity", ()))
        found[name] = SuiteEnvironment(subtasks=subtasks, identity=identity, **entry)
    return found


SUITE: Mapping[str, SuiteEnvironment] = _read_suite()
NUM_SUBTASKS = sum(len(part.subtasks) for part in SUITE.values())


def subtask_of(environment: str, facts: Facts) -> str | None:
    """Returns the sub-task of a task; None if the task has no sub-task."""
    subtasks = SUITE[environment].subtasks if environment in SUITE else ()
    return next((subtask.name for subtask in subtasks if subtask.holds(facts)), None)


def digest(facts: Facts) -> str:
    """Returns eight hexadecimal digits that change with any fact of a task."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:8]


def mark(environment: str, facts: Facts) -> str:
    """Returns a digest of the facts that identify an item; `suite_items/` stores it."""
    identity = SUITE[environment].identity
    return digest({name: facts.get(name) for name in identity} if identity else facts)


def choose(environment: str, manifest: Sequence[Facts]) -> dict[str, list[int]]:
    """Returns the item numbers for `suite_items/`, by sub-task.

    Selects from the test split as many items per sub-task as the paper has. If there are enough
    tasks, the numbers of items per value of `spread` (levels of BabyAI, task types of SciWorld)
    differ by at most one. The items of one value are evenly spread over its tasks.
    """
    part = SUITE[environment]
    chosen = {}
    for subtask in part.subtasks:
        strata: dict[Any, list[int]] = {}
        for facts in manifest:
            if facts["split"] == "test" and subtask.holds(facts):
                stratum = facts[part.spread] if part.spread else ""
                strata.setdefault(stratum, []).append(facts[part.number])
        found = sum(map(len, strata.values()))
        if not 0 < subtask.test_items <= found:
            raise ValueError(
                f"suite: {environment} has {found} test tasks of {subtask.name}, and the paper "
                f"{subtask.test_items}"
            )
        # one item per value in turn; a value without further items is left out
        turns = itertools.zip_longest(*([name] * len(items) for name, items in strata.items()))
        names = [name for turn in turns for name in turn if name is not None]
        quotas = collections.Counter(names[: subtask.test_items])
        chosen[subtask.name] = sorted(
            # the middle tasks of equally long ranges
            items[(2 * i + 1) * len(items) // (2 * quotas[name])]
            for name, items in strata.items()
            for i in range(quotas[name])
        )
    return chosen


def by_number(environment: str, manifest: Sequence[Facts]) -> dict[int, Facts]:
    """Returns the facts of the tasks, by their number in the suite."""
    number = SUITE[environment].number
    return {row[number]: row for row in manifest if number in row}


def pinned(environment: str) -> dict[str, dict[int, str]]:
    """Returns the `mark` of every pinned item, by sub-task and item number."""
    if environment not in PINNED:
        raise ValueError(
            f"the suite has no items of {environment!r} in this version; it has {sorted(PINNED)}"
        )
    found = {}
    for line in PINNED[environment].strip().splitlines():
        name, _, items = line.partition(" = ")
        pairs = [item.split(":") for item in items.split()]
        found[name] = {int(index): value for index, value in pairs}
    return found


def check_pinned(environment: str, manifest: Sequence[Facts], subtasks: Sequence[str] = ()) -> None:
    """Raises ValueError unless the manifest has the suite's items of `subtasks` (empty for all)."""
    number = SUITE[environment].number
    served = by_number(environment, manifest)
    problems = []
    for name, items in pinned(environment).items():
        for item, expected in items.items() if not subtasks or name in subtasks else ():
            shown = f"{environment}_{item}" if number == "data_idx" else f"{number} {item}"
            if item not in served:
                problems.append(f"{shown} ({name}) is not served")
            elif mark(environment, served[item]) != expected:
                problems.append(f"{shown} ({name}) is now {_describe(served[item])}")
    if problems:
        shown = "; ".join(problems[:3])
        raise ValueError(
            f"the suite of {environment} is pinned to other tasks than the server has: "
            f"{len(problems)} items differ: {shown}. Evaluate on the server version of the suite "
            "(docs/evaluation.md), or choose tasks with kind='split'"
        )


def _describe(facts: Facts) -> str:
    words = {key: value for key, value in facts.items() if len(str(value)) <= 60}
    return ", ".join(f"{key}={value}" for key, value in words.items() if key != "data_idx")
