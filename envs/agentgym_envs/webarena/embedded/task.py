"""An embedded task: WebArena's task, its solution, and the words for making many of them."""

import dataclasses
import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence

from agentgym_envs.webarena.embedded.script import Play, Solution, Way, solution_of, stop
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

# A task's number is FIRST_IDS[..] + 100 * template + instance, so new templates move no other task.
FIRST_IDS: Mapping[str, int] = {
    "shopping": 10000,
    "shopping_admin": 20000,
    "reddit": 30000,
    "across": 50000,
    "trac": 60000,
}
_TEST_EVERY = 4  # of a template's instances, the last of every four are for testing
_HELD_OUT_EVERY = 5  # of the templates, about one in five is for testing


@dataclasses.dataclass(frozen=True)
class EmbeddedTask:
    """One task.

    Attributes:
      task: in WebArena's format, with placeholders for addresses.
      solution: makes the generator of a perfect episode.
      split: "train" or "test", by instance: every template has both.
      template_split: "train" or "test", by template: all its tasks are in the same one.
    """

    task: WebTask
    solution: Solution
    split: str
    template_split: str


@dataclasses.dataclass(frozen=True)
class Instance:
    """Values of a template, how they are scored and played."""

    values: Mapping[str, object]
    evaluation: Evaluation
    play: Play


def from_template(
    group: str,
    number: int,
    text: str,
    instances: Iterable[Instance],
    *,
    sites: Sequence[str] = (),
    start: Sequence[str] = (),
) -> list[EmbeddedTask]:
    """The tasks of one template.

    Args:
      group: a key of FIRST_IDS.
      number: of the template in its group; never used again for another one.
      text: the intent with names of values in braces.
      instances: at most 100; their order is their numbering.
      sites: that the tasks play on; the group's by default.
      start: addresses with placeholders, one for each tab; the first site's by default.
    """
    sites = tuple(sites or (group,))
    tasks = []
    for index, instance in enumerate(instances):
        if index >= 100:
            raise ValueError(f"template {number} of {group} has more than 100 instances")
        task = WebTask(
            task_id=FIRST_IDS[group] + 100 * number + index,
            sites=sites,
            intent=text.format(**instance.values),
            start_urls=tuple(start or (placeholder(sites[0]) + "/",)),
            # All tasks: nothing else may change.
            evaluation=all_of(instance.evaluation, changes()),
            intent_template_id=FIRST_IDS[group] // 100 + number,
            intent_template=text.replace("{", "{{").replace("}", "}}"),
            instantiation=dict(instance.values),
            storage_state=f"./.auth/{'.'.join(sites)}_state.json",
        )
        split = "test" if index % _TEST_EVERY == _TEST_EVERY - 1 else "train"
        solution = solution_of(instance.play)
        tasks.append(EmbeddedTask(task, solution, split, _template_split(group, number)))
    return tasks


def _template_split(group: str, number: int) -> str:
    """The split of a whole template: a hash of its name, so no new template moves another."""
    digest = hashlib.sha256(f"template {group} {number}".encode()).digest()
    return "test" if digest[0] % _HELD_OUT_EVERY == 0 else "train"


def placeholder(site: str) -> str:
    """What stands for a site's base address."""
    return f"__{site.upper()}__"


def answer_is(text: str) -> Evaluation:
    """The answer is this and nothing else."""
    return Evaluation((STRING_MATCH,), answers=Answers(exact_match=text))


def answer_has(text: str) -> Evaluation:
    """The answer is this, perhaps in a short sentence; see `evaluation/short_answer.py`."""
    return Evaluation((STRING_MATCH,), answers=Answers(short_answer=text))


def impossible() -> Evaluation:
    """The task cannot be done: the answer is N/A."""
    return Evaluation((STRING_MATCH,), answers=Answers(not_possible=True))


def ends_at(*urls: str) -> Evaluation:
    """The last page is one of these."""
    return Evaluation((URL_MATCH,), reference_urls=urls, same_url=True)


def page_is(url: str, locator: str, text: str) -> Evaluation:
    """A part of a page is this and nothing else."""
    return Evaluation((PROGRAM_HTML,), targets=(HtmlTarget(url, locator, exact_match=text),))


def changes(*edits: Edit) -> Evaluation:
    """The databases of the sites have these edits and no others."""
    return Evaluation((STATE,), edits=edits)


def added(site: str, table: str, **row: object) -> Edit:
    """A new row; see `tasks.Edit`."""
    return Edit(site, table, ADDED, row)


def removed(site: str, table: str, **row: object) -> Edit:
    """A row that is gone."""
    return Edit(site, table, REMOVED, row)


def changed(site: str, table: str, to: Mapping[str, object], **row: object) -> Edit:
    """A row with new values.

    Args:
      site: WebArena's name of the site.
      table: name of the table.
      to: column -> new value.
      row: values that it is known by.
    """
    return Edit(site, table, CHANGED, row, to)


def all_of(*evaluations: Evaluation) -> Evaluation:
    """All of these hold; at most one of them is about the answer and one about the address."""
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
    """Goes a way at whose end the task is seen to be impossible.

    Args:
      way: path to the page that shows it.
    """

    def play(observation: str) -> Generator[str, str, None]:
        yield from way(observation)
        yield stop(NOT_POSSIBLE)

    return play
