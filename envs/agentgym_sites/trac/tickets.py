"""Tickets of the site with their histories.

All random choices use a generator with a fixed seed, so the tickets are the same on every machine.
"""

import dataclasses
import datetime
import functools
import random
from collections.abc import Iterable

from agentgym_envs import data_files
from agentgym_sites.trac.projects import PROJECTS, Project

TICKETS_PER_PROJECT = 48
FIRST_DAY = datetime.date(2023, 2, 6)
LAST_DAY = datetime.date(2024, 2, 27)  # last day of tickets, because episodes start on 1 March
PRIORITIES = ("trivial", "minor", "major", "critical", "blocker")
CLOSED = "closed"

_TEXTS = data_files.beside(__file__)


@dataclasses.dataclass(frozen=True)
class Change:
    """An entry of a ticket's history.

    Attributes:
      when: ISO time in UTC.
      fields: Name of a field -> values before and after the change.
    """

    author: str
    when: str
    comment: str
    fields: dict[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A ticket; people are given by login name, times in ISO format.

    Attributes:
      project: Identifier of its project.
      description: Text of two or three sentences.
      type: "defect", "enhancement" or "task".
      priority: One of PRIORITIES.
      component: Name of the ticket's project.
      keywords: Category of the ticket within the project.
      milestone: Name of the ticket's milestone, or "".
      owner: Login of the owner, or "".
      status: "new", "accepted", "reopened" or "closed".
      resolution: "fixed", "wontfix" or "worksforme"; "" while the ticket is open.
      changes: Entries of its history, oldest first.
    """

    number: int
    project: str
    summary: str
    description: str
    type: str
    priority: str
    component: str
    keywords: str
    milestone: str
    reporter: str
    owner: str
    status: str
    resolution: str
    created: str
    changes: tuple[Change, ...]

    @property
    def is_open(self) -> bool:
        """True if the ticket is not closed."""
        return self.status != CLOSED

    @property
    def updated(self) -> str:
        """Time of the last change."""
        return self.changes[-1].when if self.changes else self.created


def milestone_name(project: Project, version: str) -> str:
    """Returns the name of the milestone for a version of a project."""
    return f"{project.name} {version}"


@functools.cache
def tickets() -> tuple[Ticket, ...]:
    """Returns all tickets; ticket number n is at index n - 1."""
    rng = random.Random(20240301)
    drafts = [draft for project in PROJECTS for draft in _drafts(project, rng)]
    # newer tickets have higher numbers, across all projects
    drafts.sort(key=lambda draft: draft.created)
    return tuple(_ticket(rng, number, draft) for number, draft in enumerate(drafts, start=1))


@dataclasses.dataclass(frozen=True)
class _Draft:
    """A ticket before its number and history are known."""

    created: datetime.datetime
    project: Project
    kind: str
    component: str
    problem: str


def _drafts(project: Project, rng: random.Random) -> Iterable[_Draft]:
    """Yields the drafts of a project, each with another pair of component and problem."""
    pairs = {
        kind: [(part, problem) for part in project.components for problem in problems]
        for kind, problems in _TEXTS["problems"].items()
    }
    for each in pairs.values():
        rng.shuffle(each)
    for _ in range(TICKETS_PER_PROJECT):
        kind = rng.choices(tuple(_TEXTS["problems"]), (55, 30, 15))[0]
        component, problem = pairs[kind].pop()
        day = FIRST_DAY + datetime.timedelta(days=rng.randrange((LAST_DAY - FIRST_DAY).days - 10))
        minute = rng.randrange(8 * 60, 17 * 60)
        created = datetime.datetime.combine(day, datetime.time(minute // 60, minute % 60))
        yield _Draft(created, project, kind, component, problem)


def _ticket(rng: random.Random, number: int, draft: _Draft) -> Ticket:
    project = draft.project
    developers = [login for login, role in project.roles.items() if role != "Reporter"]
    moves = _moves(rng, draft)
    status, resolution = moves[-1] if moves else ("new", "")
    reporter = rng.choice(list(project.roles))
    owner = rng.choice(developers) if moves or rng.random() < 0.6 else ""
    first, second = rng.sample(_TEXTS["remarks"][draft.kind], 2)
    return Ticket(
        number=number,
        project=project.identifier,
        summary=f"{draft.component} {draft.problem}",
        description=f"The {draft.component.lower()} {draft.problem}. {first} {second}",
        type=draft.kind,
        priority=rng.choices(PRIORITIES, (18, 45, 22, 11, 4))[0],
        component=project.name,
        keywords=project.categories[project.components.index(draft.component) // 2],
        milestone=_milestone(rng, draft, is_closed=status == CLOSED),
        reporter=reporter,
        owner=owner,
        status=status,
        resolution=resolution,
        created=_time(draft.created),
        changes=_changes(rng, draft, moves, reporter, owner),
    )


def _moves(rng: random.Random, draft: _Draft) -> list[tuple[str, str]]:
    """Returns the later statuses of a ticket, each with its resolution; the first status is "new".

    The statuses follow Trac's workflow: a ticket is reopened only after it was closed. Most old
    tickets are closed, and most new tickets are open.
    """
    age = (LAST_DAY - draft.created.date()).days / (LAST_DAY - FIRST_DAY).days
    if rng.random() < 0.2 + 0.6 * age:
        last = CLOSED
    else:
        last = rng.choices(("new", "accepted", "reopened"), (45, 37, 18))[0]
    if last == "new":
        return []
    moves = [("accepted", "")] if last == "accepted" or rng.random() < 0.6 else []
    if last != "accepted":
        resolutions = ("fixed", "worksforme" if draft.kind == "defect" else "wontfix")
        moves.append((CLOSED, rng.choices(resolutions, (5, 1))[0]))
    if last == "reopened":
        moves.append((last, ""))
    return moves


def _milestone(rng: random.Random, draft: _Draft, *, is_closed: bool) -> str:
    """Returns the name of a milestone for a ticket, or "".

    The milestone is open, or, for a closed ticket, it was due after the ticket's creation.
    """
    project = draft.project
    names = [
        milestone_name(project, version.name)
        for version in project.versions
        if version.status == "open" or (is_closed and version.due > _time(draft.created))
    ]
    return rng.choice(["", *names[:2]])


def _changes(
    rng: random.Random,
    draft: _Draft,
    moves: list[tuple[str, str]],
    reporter: str,
    owner: str,
) -> tuple[Change, ...]:
    """Returns comments and changes of status in chronological order.

    The owner accepts and closes the ticket, and the reporter reopens it.
    """
    count = rng.choices((0, 1, 2, 3), (25, 35, 25, 15))[0]
    notes = rng.sample(_TEXTS["notes"][draft.kind], count)
    # Each comment precedes a change of status, so closed tickets get no later comments.
    places = sorted(rng.randrange(max(len(moves), 1)) for _ in notes)
    events: list[tuple[str, str, dict[str, tuple[str, str]]]] = []
    before = ("new", "")
    for place in range(max(len(moves), 1)):
        for note in (note for note, at in zip(notes, places, strict=True) if at == place):
            events.append((rng.choice(list(draft.project.roles)), note, {}))
        if moves:
            after = moves[place]
            pairs = zip(("status", "resolution"), before, after, strict=True)
            fields = {name: (old, new) for name, old, new in pairs if old != new}
            author = reporter if after[0] == "reopened" else owner
            events.append((author, rng.choice(_TEXTS["moves"][after[1] or after[0]]), fields))
            before = after
    return tuple(
        Change(author, _time(when), note, fields)
        for when, (author, note, fields) in zip(
            _moments(rng, draft.created, len(events)), events, strict=True
        )
    )


def _moments(
    rng: random.Random, created: datetime.datetime, count: int
) -> Iterable[datetime.datetime]:
    """Yields increasing times between the creation of a ticket and the last day."""
    last = datetime.datetime.combine(LAST_DAY, datetime.time(18))
    moment = created
    for index in range(count):
        room = (last - moment) / (count - index)
        moment += min(room, datetime.timedelta(days=20)) * rng.uniform(0.1, 0.9)
        yield moment


def _time(moment: datetime.datetime) -> str:
    return moment.replace(microsecond=0).isoformat(sep=" ")
