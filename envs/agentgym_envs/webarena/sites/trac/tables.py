"""Content of the Trac site: the facts of `projects`, `issues` and `pages` in Trac's terms.

One Trac serves all projects: a project is a component, a version of it a milestone, and its wiki lies
below a page of its name.
"""

import dataclasses
import functools
import re

from agentgym_envs.webarena.sites.trac import issues, pages
from agentgym_envs.webarena.sites.trac.projects import PROJECTS, Project

TYPES = {"Bug": "defect", "Feature": "enhancement", "Support": "task"}
PRIORITIES = {
    "Low": "trivial",
    "Normal": "minor",
    "High": "major",
    "Urgent": "critical",
    "Immediate": "blocker",
}
# Status and resolution; Trac has no status between the end of the work and the closing.
STATUSES = {
    "New": ("new", ""),
    "In Progress": ("accepted", ""),
    "Resolved": ("closed", "worksforme"),
    "Feedback": ("reopened", ""),
    "Closed": ("closed", "fixed"),
    "Rejected": ("closed", "wontfix"),
}
START = "WikiStart"


@dataclasses.dataclass(frozen=True)
class Milestone:
    """A version of a project.

    Attributes:
      name: such as "Kiln 4.2".
      due: ISO date.
      is_completed: on the day that it was due.
      description: one line.
    """

    name: str
    due: str
    is_completed: bool
    description: str


@dataclasses.dataclass(frozen=True)
class Change:
    """One entry of a ticket's history.

    Attributes:
      author: login.
      when: ISO time, UTC.
      comment: may be empty.
      fields: name of a field -> value before and after.
    """

    author: str
    when: str
    comment: str
    fields: dict[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A ticket; logins, names and ISO times throughout.

    Attributes:
      number: its id.
      project: identifier of its project.
      summary: unique.
      description: two or three sentences.
      type: of TYPES.
      priority: of PRIORITIES.
      component: name of its project.
      keywords: the category in the project.
      milestone: name, or "".
      reporter: login.
      owner: login, or "".
      status: of STATUSES.
      resolution: of STATUSES; "" while the ticket is open.
      created: ISO time.
      changes: oldest first.
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
        """Whether something is left to do."""
        return self.status != "closed"

    @property
    def updated(self) -> str:
        """Time of the last change."""
        return self.changes[-1].when if self.changes else self.created


@dataclasses.dataclass(frozen=True)
class WikiPage:
    """A page of the wiki, in Trac's markup."""

    name: str
    author: str
    when: str
    text: str


def milestone_name(project: Project, version: str) -> str:
    """The milestone that stands for a version."""
    return f"{project.name} {version}"


def wiki_root(project: Project) -> str:
    """The page above the other pages of a project."""
    return project.name.replace(" ", "")


@functools.cache
def milestones() -> tuple[Milestone, ...]:
    """Those of all projects."""
    return tuple(
        Milestone(
            milestone_name(project, version.name),
            version.due,
            version.status == "closed",
            version.description,
        )
        for project in PROJECTS
        for version in project.versions
    )


@functools.cache
def tickets() -> tuple[Ticket, ...]:
    """All tickets; ticket number n is at index n - 1."""
    projects = {project.identifier: project for project in PROJECTS}
    return tuple(_ticket(issue, projects[issue.project]) for issue in issues.issues())


def _ticket(issue: issues.Issue, project: Project) -> Ticket:
    status, resolution = STATUSES[issue.status]
    return Ticket(
        number=issue.number,
        project=issue.project,
        summary=issue.subject,
        description=issue.description,
        type=TYPES[issue.tracker],
        priority=PRIORITIES[issue.priority],
        component=project.name,
        keywords=issue.category,
        milestone=milestone_name(project, issue.version) if issue.version else "",
        reporter=issue.author,
        owner=issue.assignee or "",
        status=status,
        resolution=resolution,
        created=issue.created,
        changes=tuple(map(_change, issue.changes)),
    )


def _change(change: issues.Change) -> Change:
    fields = {}
    if change.status is not None:
        before, after = (STATUSES[name] for name in change.status)
        pairs = {"status": (before[0], after[0]), "resolution": (before[1], after[1])}
        fields = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return Change(change.author, change.when, change.note, fields)


@functools.cache
def wiki_pages() -> tuple[WikiPage, ...]:
    """The pages of all projects below one that lists them."""
    projects = {project.identifier: project for project in PROJECTS}
    start = "\n".join(
        f" * [wiki:{wiki_root(project)} {project.name}]: {project.description}"
        for project in PROJECTS
    )
    above = [
        WikiPage(
            START, PROJECTS[0].on_call, "2023-03-06 09:00:00", f"= Larkspur Works =\n\n{start}\n"
        ),
        WikiPage("TitleIndex", PROJECTS[0].on_call, "2023-03-06 09:00:00", "[[TitleIndex]]\n"),
    ]
    below = [
        WikiPage(
            _page_name(projects[page.project], page.title),
            page.author,
            page.when,
            _trac_markup(projects[page.project], page.text),
        )
        for page in pages.wiki_pages()
    ]
    return (*above, *below)


def _page_name(project: Project, title: str) -> str:
    root = wiki_root(project)
    return root if title == "Wiki" else f"{root}/{title.replace(' ', '_')}"


def _trac_markup(project: Project, textile: str) -> str:
    """What our pages use of Textile: headings, lists, links, code and bold words."""

    def link(match: re.Match[str]) -> str:
        return f"[wiki:{_page_name(project, match[1])} {match[1]}]"

    rules = (
        (r"^h1\. (.*)$", r"= \1 ="),
        (r"^h2\. (.*)$", r"== \1 =="),
        (r"^# ", " 1. "),
        (r"^\* ", " * "),
        (r"\*(\w[^*\n]*)\*", r"'''\1'''"),
        (r"@([^@\n]+)@", r"`\1`"),
    )
    for pattern, replacement in rules:
        textile = re.sub(pattern, replacement, textile, flags=re.MULTILINE)
    return re.sub(r"\[\[([^\]]+)\]\]", link, textile)
