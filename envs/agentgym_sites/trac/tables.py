"""Content of the Trac site apart from its tickets: milestones and wiki pages.

One Trac serves all projects. Each project is a component, and each version of a project is a
milestone. The wiki pages of a project are below a page with the project's name.
"""

import dataclasses
import functools
import re

from agentgym_sites.trac import handbook, pages
from agentgym_sites.trac.projects import PROJECTS, Project
from agentgym_sites.trac.tickets import milestone_name

START = "WikiStart"


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
        *(
            WikiPage(name, PROJECTS[0].on_call, "2023-03-06 09:00:00", text)
            for name, text in handbook.PAGES.items()
        ),
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
    """Translates the Textile markup of the pages to Trac's markup: headings, lists, links, code and
    bold words.
    """

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
