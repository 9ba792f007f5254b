"""The 27 tasks of AgentGym-RL (arXiv:2509.08755) as data: sub-tasks, their items, turn budgets.

A sub-task is described by facts of a task manifest, so that every item id has one, also those that
are not in the suite. Which items are in the suite is fixed in `suite_items.py`, each with a digest of its
facts: the suite on a server whose tasks are other ones is refused, as are the embedded questions and
sites, which are other tasks than those of the paper. Here are only numbers and names;
what the paper's item ids were is not known, so ours are drawn by a rule (`choose`) from the test
split of our manifests.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data.suite_items import PINNED

Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SubTask:
    """One of the 27 tasks.

    Attributes:
      name: as results are reported.
      test_items: in the paper's table.
      where: fact of a manifest -> its values in this sub-task; empty if no manifest tells.
    """

    name: str
    test_items: int
    where: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def holds(self, facts: Facts) -> bool:
        """Whether a task with these facts belongs to the sub-task."""
        return bool(self.where) and all(
            fact in facts and facts[fact] in values for fact, values in self.where.items()
        )


@dataclasses.dataclass(frozen=True)
class SuiteEnvironment:
    """The part of the suite that is played in one environment.

    Attributes:
      max_turns: of an episode in the released evaluation scripts.
      test_items: in all.
      spread: fact over whose values the items of a sub-task are spread evenly; empty: over indices.
      subtasks: in the order of reports.
      identity: facts that an item is known by where its content cannot be pinned, because the data
        are the user's own; empty: all facts.
      number: fact that numbers the items. `data_idx` is the server's own number of a task, which
        moves where a server leaves tasks out.
    """

    max_turns: int
    test_items: int
    spread: str
    subtasks: tuple[SubTask, ...]
    identity: tuple[str, ...] = ()
    number: str = "data_idx"


def _families(**items: int) -> tuple[SubTask, ...]:
    return tuple(SubTask(name, n, {"family": (name,)}) for name, n in items.items())


def _on_sites(**items: tuple[str, int]) -> tuple[SubTask, ...]:
    """Tasks of the real WebArena on one site; those on the embedded sites are none of the suite."""
    return tuple(
        SubTask(name, n, {"sites": ([site],), "world": ("webarena",)})
        for name, (site, n) in items.items()
    )


def _question_sets(**items: tuple[str, int]) -> tuple[SubTask, ...]:
    return tuple(SubTask(name, n, {"dataset": (data,)}) for name, (data, n) in items.items())


SUITE: Mapping[str, SuiteEnvironment] = {
    "webarena": SuiteEnvironment(
        max_turns=15,
        test_items=50,
        spread="",
        # The paper gives 10 items for the last two together; that half are of each is our choice.
        subtasks=_on_sites(
            Shopping=("shopping", 15),
            CMS=("shopping_admin", 15),
            Maps=("map", 10),
            GitLab=("gitlab", 5),
            Reddit=("reddit", 5),
        ),
        # WebArena's number of the task: its file is not part of this package, and a deployment has
        # no tasks for sites and judges that it lacks.
        identity=("world", "task_id", "sites", "template"),
        number="task_id",
    ),
    "searchqa": SuiteEnvironment(
        max_turns=30,
        test_items=400,
        spread="",
        subtasks=_question_sets(
            NQ=("nq", 50),
            TriviaQA=("triviaqa", 50),
            PopQA=("popqa", 50),
            HotpotQA=("hotpotqa", 50),
            **{"2Wiki": ("2wikimultihopqa", 50)},
            MuSiQue=("musique", 100),
            Bamboogle=("bamboogle", 50),
        ),
        # Which row of which set: the sets themselves are not part of this package.
        identity=("dataset", "split", "upstream_idx"),
    ),
    "textcraft": SuiteEnvironment(
        max_turns=30,
        test_items=100,
        spread="",
        subtasks=tuple(
            SubTask(f"depth {depth}", items, {"depth": (depth,)})
            for depth, items in ((1, 31), (2, 41), (3, 25), (4, 3))
        ),
    ),
    "babyai": SuiteEnvironment(
        max_turns=20,
        test_items=90,
        spread="level",
        subtasks=_families(
            GoTo=55, Pickup=15, ActionObjDoor=5, FindObjS7=5, OneRoomS20=5, SynthLoc=5
        ),
    ),
    # Which of ScienceWorld's task types the paper's names stand for is our reading of them.
    "sciworld": SuiteEnvironment(
        max_turns=30,
        test_items=200,
        spread="task",
        subtasks=(
            SubTask(
                "Measure",
                53,
                {
                    "task": (
                        "use-thermometer",
                        "measure-melting-point-known-substance",
                        "measure-melting-point-unknown-substance",
                    )
                },
            ),
            SubTask(
                "Test-conductivity",
                83,
                {"task": ("test-conductivity", "test-conductivity-of-unknown-substances")},
            ),
            SubTask(
                "Find",
                44,
                {
                    "task": (
                        "find-living-thing",
                        "find-non-living-thing",
                        "find-plant",
                        "find-animal",
                    )
                },
            ),
            SubTask(
                "Chem-Mix",
                5,
                {
                    "task": (
                        "chemistry-mix",
                        "chemistry-mix-paint-secondary-color",
                        "chemistry-mix-paint-tertiary-color",
                    )
                },
            ),
            SubTask(
                "Lifespan",
                15,
                {
                    "task": (
                        "lifespan-longest-lived",
                        "lifespan-shortest-lived",
                        "lifespan-longest-lived-then-shortest-lived",
                    )
                },
            ),
        ),
    ),
}
NUM_SUBTASKS = sum(len(part.subtasks) for part in SUITE.values())


def subtask_of(environment: str, facts: Facts) -> str | None:
    """The sub-task of any task of a manifest; None if the suite has none for it."""
    if environment not in SUITE:
        return None
    for subtask in SUITE[environment].subtasks:
        if subtask.holds(facts):
            return subtask.name
    return None


def digest(facts: Facts) -> str:
    """Eight hexadecimal digits that change with any fact of a task."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:8]


def mark(environment: str, facts: Facts) -> str:
    """What an item of the suite is pinned by: the digest of the facts that it is known by."""
    identity = SUITE[environment].identity
    return digest({name: facts.get(name) for name in identity} if identity else facts)


def choose(environment: str, manifest: Sequence[Facts]) -> dict[str, list[int]]:
    """The rule by which the items of `suite_items.py` were found: sub-task -> numbers of items.

    From the test split, as many as the paper has. They go round the values of `spread` (levels of
    BabyAI, task types of SciWorld) so that each has the same number, or one less; within a value
    they are evenly spread over its indices.

    Raises:
      ValueError: the split has fewer tasks than the paper.
    """
    part = SUITE[environment]
    chosen = {}
    for subtask in part.subtasks:
        strata: dict[Any, list[int]] = {}
        for facts in manifest:
            if facts["split"] == "test" and subtask.holds(facts):
                strata.setdefault(facts[part.spread] if part.spread else "", []).append(
                    facts[part.number]
                )
        wanted = subtask.test_items
        found = sum(map(len, strata.values()))
        if not 0 < wanted <= found:
            raise ValueError(
                f"suite: {environment} has {found} test tasks of {subtask.name}, and the paper "
                f"{subtask.test_items}"
            )
        quotas = _round_robin({name: len(items) for name, items in strata.items()}, wanted)
        chosen[subtask.name] = sorted(
            item for name, items in strata.items() for item in _spread(items, quotas[name])
        )
    return chosen


def _round_robin(available: Mapping[Any, int], wanted: int) -> dict[Any, int]:
    """Deals `wanted` places out one by one to those that have something left."""
    dealt = dict.fromkeys(available, 0)
    while wanted:
        for name in dealt:
            if wanted and dealt[name] < available[name]:
                dealt[name] += 1
                wanted -= 1
    return dealt


def _spread(items: Sequence[int], wanted: int) -> list[int]:
    """`wanted` of the items, the middles of equally long stretches."""
    return [items[(2 * i + 1) * len(items) // (2 * wanted)] for i in range(wanted)]


def by_number(environment: str, manifest: Sequence[Facts]) -> dict[int, Facts]:
    """Tasks by what the suite numbers them by."""
    number = SUITE[environment].number
    return {row[number]: row for row in manifest if number in row}


def pin(environment: str, manifest: Sequence[Facts]) -> str:
    """The text of `suite_items.py` for one environment: `number:mark` of every chosen item."""
    facts = by_number(environment, manifest)
    lines = []
    for name, items in choose(environment, manifest).items():
        lines.append(f"{name} = " + " ".join(f"{i}:{mark(environment, facts[i])}" for i in items))
    return "\n".join(lines)


def pinned(environment: str) -> dict[str, dict[int, str]]:
    """Sub-task -> number of an item -> its `mark`.

    Raises:
      ValueError: this version of the suite has no items of the environment.
    """
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
    """Refuses a server whose tasks are not those of the suite.

    Args:
      environment: its name.
      manifest: the server's task list.
      subtasks: those that are played; empty: all.

    Raises:
      ValueError: with the items that differ.
    """
    number = SUITE[environment].number
    served = by_number(environment, manifest)
    problems = []
    for name, items in pinned(environment).items():
        for item, expected in items.items() if not subtasks or name in subtasks else ():
            told = f"{environment}_{item}" if number == "data_idx" else f"{number} {item}"
            if item not in served:
                problems.append(f"{told} ({name}) is not served")
            elif mark(environment, served[item]) != expected:
                problems.append(f"{told} ({name}) is now {describe(served[item])}")
    if problems:
        shown = "; ".join(problems[:3])
        raise ValueError(
            f"the suite of {environment} is pinned to other tasks than the server has: "
            f"{len(problems)} items differ: {shown}. Evaluate on the server version of the suite "
            "(docs/evaluation.md), or choose tasks with kind='split'"
        )


def describe(facts: Facts) -> str:
    """The short facts of a task on one line."""
    words = {key: value for key, value in facts.items() if len(str(value)) <= 60}
    return ", ".join(f"{key}={value}" for key, value in words.items() if key != "data_idx")
