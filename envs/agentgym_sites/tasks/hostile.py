"""Hostile agent, which must score 0. It pastes pages as answers and makes all changes that it can.

This module needs no browser. It evaluates all tasks with the answers and database states that a
hostile agent could reach. In `check` the agent also runs in a browser.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.webarena.embedded_sites import RunningSites
from agentgym_envs.webarena.evaluation.evaluate import evaluate
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.tasks import (
    ADDED,
    CHANGED,
    NOT_POSSIBLE,
    REMOVED,
    Edit,
    ShortText,
    WebTask,
)
from agentgym_envs.webarena.world import new_episode
from agentgym_sites.content import Changes
from agentgym_sites.tasks.task import EmbeddedTask
from agentgym_sites.tasks.visitor import Document, Visitor

_TEXT = "Changed by a hostile agent"
_MOST_FORMS = 40  # maximum number of forms per site


@dataclasses.dataclass(frozen=True)
class Ending:
    """End of an episode that should solve no task.

    Attributes:
      changes: Changes of the databases by site.
    """

    deed: str
    answer: str
    changes: Mapping[str, Changes]


@dataclasses.dataclass(frozen=True)
class Hacked:
    """A task on which an ending scored above 0, and the description of the attack."""

    task_id: int
    deed: str


class _FirstPage:
    """Empty last page of an episode, for the evaluators; it runs no scripts."""

    url = "http://nowhere.test/"

    async def content(self) -> str:
        return ""

    async def evaluate(self, script: str) -> Any:
        raise PageError("there is no browser here")

    async def goto(self, url: str) -> None:
        raise PageError("there is no browser here")


def hacked(tasks: Sequence[EmbeddedTask], endings: Iterable[Ending]) -> list[Hacked]:
    """Returns the tasks that score above 0 for an ending.

    Args:
      tasks: Tasks to check.
      endings: Endings that should solve no task. The only exception is the answer N/A without a
          change, which solves impossible tasks.
    """
    found = []
    for ending in endings:
        for each in tasks:
            if _score(each.task, ending) and not _is_right(each.task, ending):
                found.append(Hacked(each.task.task_id, ending.deed))
    return found


def _score(task: WebTask, ending: Ending) -> float:
    async def changes() -> Mapping[str, Changes]:
        return ending.changes

    work = evaluate(task, ending.answer, _FirstPage(), changes=changes)
    try:
        work.send(None)  # the evaluators never wait here, so no event loop is needed
    except StopIteration as done:
        return done.value.score
    raise AssertionError("an evaluator waited")


def _is_right(task: WebTask, ending: Ending) -> bool:
    answers = task.evaluation.answers
    is_impossible = answers is not None and answers.not_possible
    return is_impossible and ending.answer == NOT_POSSIBLE and not any(ending.changes.values())


def pasted(documents: Sequence[Document]) -> Iterator[Ending]:
    """Yields endings with the answer N/A, the text of all pages, or the text of one page."""
    yield Ending("answers N/A", NOT_POSSIBLE, {})
    text = " ".join(each.text for each in documents)
    yield Ending("pastes all pages", text, {})
    yield Ending("pastes all pages with N/A", f"{NOT_POSSIBLE} {text}", {})
    for each in documents:
        yield Ending(f"pastes {each.url}", each.text, {})


def misdone(tasks: Sequence[EmbeddedTask]) -> Iterator[tuple[EmbeddedTask, Ending]]:
    """Yields tasks that require changes, each with several nearly right but wrong endings."""
    for index, each in enumerate(tasks):
        edits = each.task.evaluation.edits
        other = tasks[index - 1].task.evaluation.edits
        answer = _answer(each.task)
        yield each, Ending("changes something more", answer, _state([*edits, *other]))
        for number, edit in enumerate(edits):
            rest = [*edits[:number], *edits[number + 1 :]]
            yield each, Ending("leaves out an edit", answer, _state(rest))
            yield each, Ending("does an edit twice", answer, _state([*edits, edit]))
            for wrong in _wrong(edit):
                yield each, Ending("changes a wrong value", answer, _state([*rest, wrong]))


def _answer(task: WebTask) -> str:
    answers = task.evaluation.answers
    return (answers.exact_match or answers.short_answer or "") if answers else ""


def _wrong(edit: Edit) -> Iterator[Edit]:
    """Yields copies of an edit with one wrong value each."""
    for column in edit.row:
        yield dataclasses.replace(edit, row={**edit.row, column: _TEXT})
    for column in edit.to:
        yield dataclasses.replace(edit, to={**edit.to, column: _TEXT})


def _state(edits: Sequence[Edit]) -> dict[str, Changes]:
    """Returns the database changes that result from the edits."""
    state: dict[str, Changes] = {}
    for edit in edits:
        found = state.setdefault(edit.site, {}).setdefault(edit.table, {REMOVED: [], ADDED: []})
        row = {column: _plain(value) for column, value in edit.row.items()}
        if edit.kind in (REMOVED, CHANGED):
            found[REMOVED].append(row)
        if edit.kind == ADDED:
            found[ADDED].append(row)
        elif edit.kind == CHANGED:
            found[ADDED].append(row | dict(edit.to))
    return state


def _plain(value: Any) -> Any:
    return value.text if isinstance(value, ShortText) else value


def vandalised(sites: RunningSites, pages: int) -> tuple[list[Document], list[Ending]]:
    """Reads pages of the sites, then submits all forms on these pages with other texts and choices.

    Returns:
      The pages, and the endings after the forms of the first site, of the first two sites, and so
      on.
    """
    reading, writing = new_episode(), new_episode()
    documents: list[Document] = []
    endings = []
    try:
        for name in sorted(sites.urls):
            found = list(Visitor(sites, name, reading).walk(pages))
            documents += found
            visitor = Visitor(sites, name, writing)
            for url in _with_forms(found):
                _send_all(visitor, url)
            for answer in ("", NOT_POSSIBLE):
                endings.append(Ending(f"sends the forms of {name}", answer, sites.changes(writing)))
        text = " ".join(each.text for each in documents)
        endings.append(Ending("sends all forms and pastes", text, endings[-1].changes))
    finally:
        for episode in (reading, writing):
            sites.end_episode(episode)
    return documents, endings


def _with_forms(documents: Sequence[Document]) -> list[str]:
    """Returns the addresses of the pages that have a form which no earlier page has."""
    actions: set[str] = set()
    chosen = []
    for page in documents:
        new = {form.action for form in page.forms if form.method == "post"} - actions
        if new and len(actions) < _MOST_FORMS:
            actions |= new
            chosen.append(page.url)
    return chosen


def _send_all(visitor: Visitor, url: str) -> None:
    page = visitor.get(url)
    for form in page.forms if page is not None else ():
        if form.method == "post":
            values = dict.fromkeys(form.texts, _TEXT)
            values |= {name: found[-1] for name, found in form.choices.items() if found}
            visitor.send(form, values)


def hacked_by_others(tasks: Sequence[EmbeddedTask]) -> list[Hacked]:
    """Returns the tasks that score above 0 for the changes of another task."""
    found = []
    for each in tasks:
        edits = each.task.evaluation.edits
        if edits:
            ending = Ending(f"does task {each.task.task_id}", "", _state(edits))
            found += hacked([other for other in tasks if other is not each], [ending])
    return found


def check_without_browser(
    tasks: Sequence[EmbeddedTask], sites: RunningSites, *, pages: int = 25
) -> list[Hacked]:
    """Returns the tasks on which a hostile agent without a browser scores above 0."""
    documents, endings = vandalised(sites, pages)
    found = hacked(tasks, [*pasted(documents), *endings])
    for own, ending in misdone([each for each in tasks if each.task.evaluation.edits]):
        found += hacked([own], [ending])
    return found + hacked_by_others(tasks)
