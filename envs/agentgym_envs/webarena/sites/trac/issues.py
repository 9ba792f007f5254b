"""The issues of the site with what happened to them: changes, comments, watchers and hours.

Everything is drawn from one generator with a fixed seed, so it is the same on every machine.
"""

import dataclasses
import datetime
import functools
import random

from agentgym_envs.webarena.sites.trac.projects import (
    AGENT,
    BUG_PROBLEMS,
    FEATURE_PROBLEMS,
    PROJECTS,
    SUPPORT_PROBLEMS,
    Project,
)

ISSUES_PER_PROJECT = 48
FIRST_DAY = datetime.date(2023, 2, 6)
LAST_DAY = datetime.date(2024, 2, 27)  # two days before the episodes start
TRACKERS = ("Bug", "Feature", "Support")
PRIORITIES = ("Low", "Normal", "High", "Urgent", "Immediate")
STATUSES = ("New", "In Progress", "Resolved", "Feedback", "Closed", "Rejected")
CLOSED = ("Closed", "Rejected")
ACTIVITIES = ("Design", "Development")  # of time entries

_PROBLEMS = {"Bug": BUG_PROBLEMS, "Feature": FEATURE_PROBLEMS, "Support": SUPPORT_PROBLEMS}
_OBSERVED = (
    "Seen on the test system since the last update.",
    "Three customers called about it this week.",
    "It does not happen on every machine.",
    "I could reproduce it with the sample data.",
    "It was fine before the move to the new server.",
    "The night shift noticed it first.",
)
_WISHED = (
    "It would save the branch offices an hour a day.",
    "The cooperative asked for it at the spring meeting.",
    "Two of the pilot users are waiting for it.",
    "Please talk to the support desk before starting.",
    "A simple first version would do.",
)
_NOTES = (
    "I can confirm this with the current build.",
    "Not before the next release, I am afraid.",
    "The log says nothing unusual around that time.",
    "A first patch is on its way.",
    "Could somebody from the field test this?",
    "Works for me after clearing the local data.",
    "The cause is an old setting; I have written it down in the wiki.",
    "Let us discuss it on Thursday.",
    "The customer agreed to wait for the fix.",
    "Please attach a picture of what you see.",
    "We should check the neighbouring module, too.",
    "Reviewed; two small remarks are in the mail.",
)
_WORK = (
    "Analysis with the customer",
    "First draft",
    "Review and corrections",
    "Tests on the pilot system",
    "Clean-up",
    "Pairing",
)


@dataclasses.dataclass(frozen=True)
class Change:
    """One entry of an issue's history.

    Attributes:
      author: login.
      when: ISO time, UTC.
      note: text, may be empty.
      status: (old, new) names, or None.
    """

    author: str
    when: str
    note: str
    status: tuple[str, str] | None


@dataclasses.dataclass(frozen=True)
class TimeEntry:
    """Hours that somebody spent on an issue.

    Attributes:
      user: login.
      day: ISO date.
      hours: multiples of a quarter.
      activity: of ACTIVITIES.
      comment: one line.
    """

    user: str
    day: str
    hours: float
    activity: str
    comment: str


@dataclasses.dataclass(frozen=True)
class Issue:
    """An issue; logins, names and ISO times throughout.

    Attributes:
      number: its id.
      project: identifier.
      tracker: of TRACKERS.
      subject: unique in its project.
      description: two or three sentences.
      status: of STATUSES.
      priority: of PRIORITIES.
      category: of its project.
      version: of its project, or None.
      author: login.
      assignee: login of a member, or None.
      created: ISO time.
      start: ISO date.
      due: ISO date, or None.
      done: per cent.
      estimate: hours, or None.
      changes: oldest first.
      watchers: logins.
      time_entries: oldest first.
    """

    number: int
    project: str
    tracker: str
    subject: str
    description: str
    status: str
    priority: str
    category: str
    version: str | None
    author: str
    assignee: str | None
    created: str
    start: str
    due: str | None
    done: int
    estimate: float | None
    changes: tuple[Change, ...]
    watchers: tuple[str, ...]
    time_entries: tuple[TimeEntry, ...]

    @property
    def updated(self) -> str:
        """Time of the last change."""
        return self.changes[-1].when if self.changes else self.created

    @property
    def is_closed(self) -> bool:
        """True if nothing is left to do."""
        return self.status in CLOSED

    @property
    def closed_on(self) -> str | None:
        """When it was closed."""
        moves = [change.when for change in self.changes if change.status]
        return moves[-1] if self.is_closed else None

    @property
    def hours(self) -> float:
        """Hours spent in all."""
        return sum(entry.hours for entry in self.time_entries)


@functools.cache
def issues() -> tuple[Issue, ...]:
    """All issues; issue number n is at index n - 1."""
    rng = random.Random(20240301)
    drafts = [draft for project in PROJECTS for draft in _drafts(project, rng)]
    drafts.sort(key=lambda draft: draft[0])  # numbers grow with time, across projects
    return tuple(
        _issue(rng, number, project, tracker, component, problem, created)
        for number, (created, project, tracker, component, problem) in enumerate(drafts, start=1)
    )


def of_project(identifier: str) -> tuple[Issue, ...]:
    """The issues of one project, oldest first."""
    return tuple(issue for issue in issues() if issue.project == identifier)


def _drafts(project: Project, rng: random.Random):
    """When, project, tracker, component and problem of each issue of a project; no pair twice."""
    pairs = {
        tracker: [(part, problem) for part in project.components for problem in problems]
        for tracker, problems in _PROBLEMS.items()
    }
    for tracker in TRACKERS:
        rng.shuffle(pairs[tracker])
    for _ in range(ISSUES_PER_PROJECT):
        tracker = rng.choices(TRACKERS, (55, 30, 15))[0]
        component, problem = pairs[tracker].pop()
        day = FIRST_DAY + datetime.timedelta(days=rng.randrange((LAST_DAY - FIRST_DAY).days - 10))
        minute = rng.randrange(8 * 60, 17 * 60)
        created = datetime.datetime.combine(day, datetime.time(minute // 60, minute % 60))
        yield created, project, tracker, component, problem


def _issue(rng, number, project, tracker, component, problem, created) -> Issue:
    team = [login for login, role in project.roles.items() if role != "Reporter"]
    everybody = list(project.roles)
    status = _status(rng, created)
    author = rng.choice(everybody)
    due = created.date() + datetime.timedelta(days=rng.randrange(14, 120))
    assignee = rng.choice(team) if status != "New" or rng.random() < 0.6 else None
    remarks = (_WISHED if tracker == "Feature" else _OBSERVED, _OBSERVED + _WISHED)
    first = rng.choice(remarks[0])
    second = rng.choice([text for text in remarks[1] if text != first])
    return Issue(
        number=number,
        project=project.identifier,
        tracker=tracker,
        subject=f"{component} {problem}",
        description=f"The {component.lower()} {problem}. {first} {second}",
        status=status,
        priority=rng.choices(PRIORITIES, (18, 45, 22, 11, 4))[0],
        category=project.categories[project.components.index(component) // 2],
        version=rng.choice([None, *(version.name for version in project.versions[-2:])]),
        author=author,
        assignee=assignee,
        created=_time(created),
        start=created.date().isoformat(),
        due=due.isoformat() if rng.random() < 0.6 else None,
        done=_done(rng, status),
        estimate=float(rng.choice((2, 4, 6, 8, 12, 16, 24))) if rng.random() < 0.7 else None,
        changes=_changes(rng, created, status, [login for login in everybody if login != AGENT]),
        watchers=tuple(
            rng.sample([login for login in everybody if login != AGENT], rng.randrange(3))
        ),
        time_entries=_time_entries(rng, created, team),
    )


def _status(rng: random.Random, created: datetime.datetime) -> str:
    """Old issues are mostly closed, young ones mostly open."""
    age = (LAST_DAY - created.date()).days / (LAST_DAY - FIRST_DAY).days
    if rng.random() < 0.15 + 0.55 * age:
        return rng.choices(CLOSED, (6, 1))[0]
    return rng.choices(STATUSES[:4], (40, 30, 15, 15))[0]


def _done(rng: random.Random, status: str) -> int:
    if status in ("New", "Rejected"):
        return 0
    return 100 if status in ("Resolved", "Closed") else rng.randrange(10, 100, 10)


def _changes(rng, created, status, people) -> tuple[Change, ...]:
    """Comments in between, and the moves from New to the present status."""
    kinds = ["note"] * rng.choices((0, 1, 2, 3), (25, 35, 25, 15))[0]
    path = ["New"] if status == "New" else ["New", status]
    if status in ("Resolved", "Closed") and rng.random() < 0.6:
        path.insert(1, "In Progress")
    kinds += ["move"] * (len(path) - 1)
    rng.shuffle(kinds)
    notes = rng.sample(_NOTES, kinds.count("note"))
    moment, changes = created, []
    last = datetime.datetime.combine(LAST_DAY, datetime.time(18))
    for index, kind in enumerate(kinds):
        room = (last - moment) / (len(kinds) - index)
        moment += min(room, datetime.timedelta(days=20)) * rng.uniform(0.1, 0.9)
        move = (path.pop(0), path[0]) if kind == "move" else None
        note = notes.pop() if kind == "note" else ""
        changes.append(Change(rng.choice(people), _time(moment), note, move))
    return tuple(changes)


def _time_entries(rng, created, team) -> tuple[TimeEntry, ...]:
    entries = []
    for _ in range(rng.choices((0, 1, 2, 3), (35, 25, 25, 15))[0]):
        day = created.date() + datetime.timedelta(days=rng.randrange(1, 40))
        hours = rng.randrange(2, 25) / 4
        entries.append(
            TimeEntry(
                rng.choice(team),
                min(day, LAST_DAY).isoformat(),
                hours,
                rng.choice(ACTIVITIES),
                rng.choice(_WORK),
            )
        )
    return tuple(sorted(entries, key=lambda entry: entry.day))


def _time(moment: datetime.datetime) -> str:
    return moment.replace(microsecond=0).isoformat(sep=" ")
