"""Content of the Trac site apart from its tickets: milestones and wiki pages.

One Trac serves all projects. Each project is a component, and each version of a project is a
milestone. The wiki pages of a project are below a page with the project's name.
"""

import dataclasses
import functools
from collections.abc import Iterator

from agentgym_envs import data_files
from agentgym_sites.trac.projects import PROJECTS, Project, full_name
from agentgym_sites.trac.tickets import milestone_name

START = "WikiStart"
_PAGES = data_files.beside(__file__)


@dataclasses.dataclass(frozen=True)
class Milestone:
    """Milestone for a version of a project.

    Attributes:
      name: Name such as "Kiln 4.2".
      due: Due date in ISO format.
      is_completed: True if the milestone is completed; its date of completion is the due date.
      description: Description of one line.
    """

    name: str
    due: str
    is_completed: bool
    description: str


@dataclasses.dataclass(frozen=True)
class WikiPage:
    """A page of the wiki, written in Trac's markup."""

    name: str
    author: str
    when: str
    text: str


def wiki_root(project: Project) -> str:
    """Returns the name of the wiki page below which the other pages of a project are."""
    return project.name.replace(" ", "")


@functools.cache
def milestones() -> tuple[Milestone, ...]:
    """Returns the milestones of all projects."""
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
def wiki_pages() -> tuple[WikiPage, ...]:
    """Returns the wiki pages: a start page that lists the projects, the handbook, and the pages of
    all projects.
    """
    start = "\n".join(
        f" * [wiki:{wiki_root(project)} {project.name}]: {project.description}"
        for project in PROJECTS
    )
    texts = {
        START: f"= Larkspur Works =\n\n{start}\n",
        "TitleIndex": "[[TitleIndex]]\n",
        **_PAGES["handbook"],
    }
    above = (
        WikiPage(name, PROJECTS[0].on_call, "2023-03-06 09:00:00", text)
        for name, text in texts.items()
    )
    return (*above, *(page for project in PROJECTS for page in _project_pages(project)))


def _project_pages(project: Project) -> Iterator[WikiPage]:
    manager = next(login for login in reversed(project.roles) if project.roles[login] == "Manager")
    parts = (
        f" * '''{part}''': belongs to {project.categories[index // 2]}."
        for index, part in enumerate(project.components)
    )
    facts = {
        "project": project,
        "root": wiki_root(project),
        "manager": full_name(manager),
        "on_call": full_name(project.on_call),
        "parts": "\n".join(parts),
    }
    for day, (name, text) in enumerate(_PAGES["projects"].items(), start=6):
        when = f"2023-03-{day:02} 09:30:00"
        yield WikiPage(name.format(**facts), manager, when, text.format(**facts))
