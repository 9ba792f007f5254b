"""An embedded task: WebArena's task, its solution, and the words for making many of them."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from agentgym_envs.webarena.embedded.script import Play, Solution, solution_of
from agentgym_envs.webarena.tasks import (
    PROGRAM_HTML,
    STRING_MATCH,
    URL_MATCH,
    Answers,
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


@dataclasses.dataclass(frozen=True)
class EmbeddedTask:
    """One task.

    Attributes:
      task: in WebArena's format, with placeholders for addresses.
      solution: makes the generator of a perfect episode.
      split: "train" or "test".
    """

    task: WebTask
    solution: Solution
    split: str


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
            evaluation=instance.evaluation,
            intent_template_id=FIRST_IDS[group] // 100 + number,
            intent_template=text.replace("{", "{{").replace("}", "}}"),
            instantiation=dict(instance.values),
            storage_state=f"./.auth/{'.'.join(sites)}_state.json",
        )
        split = "test" if index % _TEST_EVERY == _TEST_EVERY - 1 else "train"
        tasks.append(EmbeddedTask(task, solution_of(instance.play), split))
    return tasks


def placeholder(site: str) -> str:
    """What stands for a site's base address."""
    return f"__{site.upper()}__"


def answer_is(text: str) -> Evaluation:
    """The answer is this and nothing else."""
    return Evaluation((STRING_MATCH,), answers=Answers(exact_match=text))


def answer_has(*texts: str) -> Evaluation:
    """The answer contains all of these."""
    return Evaluation((STRING_MATCH,), answers=Answers(must_include=texts))


def ends_at(*urls: str) -> Evaluation:
    """The last page is one of these."""
    return Evaluation((URL_MATCH,), reference_urls=urls)


def page_has(url: str, *texts: str, locator: str = "document.body.innerText") -> Evaluation:
    """A page contains all of these.

    Args:
      url: with a placeholder, or "last".
      texts: as they stand on the page, case aside.
      locator: the part of the page.
    """
    return Evaluation((PROGRAM_HTML,), targets=(HtmlTarget(url, locator, must_include=texts),))


def page_is(url: str, locator: str, text: str) -> Evaluation:
    """A part of a page is this and nothing else."""
    return Evaluation((PROGRAM_HTML,), targets=(HtmlTarget(url, locator, exact_match=text),))


def page_lacks(url: str, text: str) -> Evaluation:
    """A page does not have this text."""
    return page_is(url, f"document.body.innerText.includes({text!r}) ? 'there' : 'gone'", "gone")


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
    )
