"""An embedded task, which is a WebArena task with a solution, and functions that make embedded
tasks.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TypeAlias

from agentgym_envs.webarena.tasks import (
    ADDED,
    CHANGED,
    NOT_POSSIBLE,
    PROGRAM_HTML,
    REMOVED,
    STATE,
    STRING_MATCH,
    URL_MATCH,
    Answers,
    Edit,
    Evaluation,
    HtmlTarget,
    WebTask,
)
from agentgym_sites.tasks.script import Play, Solution, Way, solution_of, stop

# A task's number is FIRST_IDS[group] + 100 * template + instance, so a new template does not change
# other numbers.
FIRST_IDS: Mapping[str, int] = {
    "shopping": 10000,
    "shopping_admin": 20000,
    "reddit": 30000,
    "across": 50000,
    "trac": 60000,
}
_TEST_EVERY = 4  # the last of every four instances of a template is a test task
_HELD_OUT_EVERY = 5  # about one template in five is a test template


@dataclasses.dataclass(frozen=True)
class EmbeddedTask:
    """A task with its solution and its splits.

    Attributes:
      task: Task in WebArena's format, with placeholders for addresses.
      solution: Function that creates a generator, which solves the task.
      split: "train" or "test"; instances of the same template are in both splits.
      template_split: "train" or "test"; all tasks of a template are in the same split.
    """

    task: WebTask
    solution: Solution
    split: str
    template_split: str


# A task of a template: values for the placeholders, evaluation, and solution.
Row: TypeAlias = tuple[Mapping[str, object], Evaluation, Play]
Rows: TypeAlias = Iterator[Row]
Maker: TypeAlias = Callable[[], Rows]


class Templates:
    """Templates of one group.

    Args:
      group: Key of FIRST_IDS.
      sites: Sites that the tasks use, each of which has a tab; by default the site of the group.
    """

    def __init__(self, group: str, sites: Sequence[str] = ()):
        self._group = group
        self._sites = sites or (group,)
        self._found: list[tuple[int, str, Sequence[str], Maker]] = []

    def __call__(
        self, number: int, text: str, sites: Sequence[str] = ()
    ) -> Callable[[Maker], Maker]:
        """Returns a decorator for the function that yields the tasks of a template.

        Args:
          number: Number of the template in its group; never reused for another template.
          text: Intent with the names of values in braces.
          sites: Sites of this template, if they are others than those of the group.
        """

        def add(rows: Maker) -> Maker:
            self._found.append((number, text, sites or self._sites, rows))
            return rows

        return add

    def tasks(self) -> list[EmbeddedTask]:
        """Returns the tasks of all templates; the order of the tasks of each gives their numbers."""
        return [
            self._task(number, text, sites, index, row)
            for number, text, sites, rows in self._found
            for index, row in enumerate(rows())
        ]

    def _task(
        self, number: int, text: str, sites: Sequence[str], index: int, row: Row
    ) -> EmbeddedTask:
        if index >= 100:
            raise ValueError(f"template {number} of {self._group} has more than 100 tasks")
        values, evaluation, play = row
        first_id = FIRST_IDS[self._group]
        task = WebTask(
            task_id=first_id + 100 * number + index,
            sites=tuple(sites),
            intent=text.format(**values),
            start_urls=tuple(f"__{site.upper()}__/" for site in sites),
            # With `changes()`, the task fails if the databases have any other change.
            evaluation=all_of(evaluation, changes()),
            intent_template_id=first_id // 100 + number,
            intent_template=text.replace("{", "{{").replace("}", "}}"),
            instantiation=dict(values),
            storage_state=f"./.auth/{'.'.join(sites)}_state.json",
        )
        split = "test" if index % _TEST_EVERY == _TEST_EVERY - 1 else "train"
        template_split = _template_split(self._group, number)
        return EmbeddedTask(task, solution_of(play), split, template_split)


def _template_split(group: str, number: int) -> str:
    """Returns the split of a template, which is derived from a hash of the template's name.

    A new template therefore does not affect the splits of other templates.
    """
    digest = hashlib.sha256(f"template {group} {number}".encode()).digest()
    return "test" if digest[0] % _HELD_OUT_EVERY == 0 else "train"


def answer_is(text: str) -> Evaluation:
    """Returns an evaluation that requires an answer equal to the text."""
    return Evaluation((STRING_MATCH,), answers=Answers(exact_match=text))


def answer_has(text: str) -> Evaluation:
    """Returns an evaluation that requires the text as the answer, or a short sentence with the
    text.

    The exact rule is in `agentgym_envs/webarena/evaluation/short_answer.py`.
    """
    return Evaluation((STRING_MATCH,), answers=Answers(short_answer=text))


def impossible() -> Evaluation:
    """Returns the evaluation of an impossible task, which requires the answer N/A."""
    return Evaluation((STRING_MATCH,), answers=Answers(not_possible=True))


def ends_at(*urls: str) -> Evaluation:
    """Returns an evaluation that requires the last page to have one of the given addresses."""
    return Evaluation((URL_MATCH,), reference_urls=urls, same_url=True)


def page_is(url: str, locator: str, text: str) -> Evaluation:
    """Returns an evaluation that requires a part of a page to be equal to the text."""
    return Evaluation((PROGRAM_HTML,), targets=(HtmlTarget(url, locator, exact_match=text),))


def changes(*edits: Edit) -> Evaluation:
    """Returns an evaluation that requires that the sites' databases have the given edits and no
    other changes.
    """
    return Evaluation((STATE,), edits=edits)


def added(site: str, table: str, **row: object) -> Edit:
    """Returns the edit that adds a row; see `agentgym_envs.webarena.tasks.Edit`."""
    return Edit(site, table, ADDED, row)


def removed(site: str, table: str, **row: object) -> Edit:
    """Returns the edit that removes a row."""
    return Edit(site, table, REMOVED, row)


def changed(site: str, table: str, to: Mapping[str, object], **row: object) -> Edit:
    """Returns the edit that changes values of a row."""
    return Edit(site, table, CHANGED, row, to)


def all_of(*evaluations: Evaluation) -> Evaluation:
    """Returns an evaluation that requires all given evaluations.

    At most one of the evaluations may concern the answer, and at most one the address.
    """
    kinds: list[str] = []
    for evaluation in evaluations:
        kinds += [kind for kind in evaluation.eval_types if kind not in kinds]
    answers = [evaluation.answers for evaluation in evaluations if evaluation.answers]
    return Evaluation(
        tuple(kinds),
        answers=answers[0] if answers else None,
        reference_urls=tuple(url for each in evaluations for url in each.reference_urls),
        targets=tuple(target for each in evaluations for target in each.targets),
        same_url=any(evaluation.same_url for evaluation in evaluations),
        edits=tuple(edit for each in evaluations for edit in each.edits),
    )


def refusing(way: Way) -> Play:
    """Returns a `Play` that follows a `Way` to the page that shows that the task is impossible, and
    answers so.
    """

    def play(observation: str) -> Generator[str, str, None]:
        yield from way(observation)
        yield stop(NOT_POSSIBLE)

    return play
