"""An embedded task, which is a WebArena task with a solution, and functions that make embedded
tasks.
"""

import dataclasses
import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence

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


@dataclasses.dataclass(frozen=True)
class Instance:
    """Values for the placeholders of a template, with the evaluation and the solution of the
    resulting task.
    """

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
    """Returns the tasks of one template.

    Args:
      group: Key of FIRST_IDS.
      number: Number of the template in its group; never reused for another template.
      text: Intent with the names of values in braces.
      instances: At most 100 instances; their order determines their numbers.
      sites: Sites that the tasks use; by default the site of the group.
      start: Addresses with placeholders, one for each tab; by default the first site's address.
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
            # With `changes()`, the task fails if the databases have any other change.
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
    """Returns the split of a template, which is derived from a hash of the template's name.

    A new template therefore does not affect the splits of other templates.
    """
    digest = hashlib.sha256(f"template {group} {number}".encode()).digest()
    return "test" if digest[0] % _HELD_OUT_EVERY == 0 else "train"


def placeholder(site: str) -> str:
    """Returns the placeholder for a site's base address."""
    return f"__{site.upper()}__"


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
