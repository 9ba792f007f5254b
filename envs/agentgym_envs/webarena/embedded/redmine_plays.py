"""Ways through Redmine that its solutions share."""

import functools

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import Node, Play, Reader, Script
from agentgym_envs.webarena.sites.redmine.issues import Issue
from agentgym_envs.webarena.sites.redmine.projects import PROJECTS, Project


def project_of(issue: Issue) -> Project:
    """The project that an issue belongs to."""
    return next(project for project in PROJECTS if project.identifier == issue.project)


def issue_address(issue: Issue) -> str:
    """Of an issue's page."""
    return f"__GITLAB__/issues/{issue.number}"


def project_address(project: Project, path: str = "") -> str:
    """Of a page of a project."""
    return f"__GITLAB__/projects/{project.identifier}{path}"


def open_issue(observation: str, issue: Issue) -> Script:
    """Searches for an issue and opens it."""
    observation = yield from script.fill(observation, "Search:", issue.subject, enter=True)
    return (yield from script.click(observation, "link", issue.subject))


def open_project(observation: str, project: Project) -> Script:
    """Opens the overview of a project by the list of projects."""
    observation = yield from script.click(observation, "link", "Projects")
    return (yield from script.click(observation, "link", project.name))


def open_tab(observation: str, project: Project, *tabs: str) -> Script:
    """Opens a project and follows links from there."""
    observation = yield from open_project(observation, project)
    for tab in tabs:
        observation = yield from script.click(observation, "link", tab)
    return observation


def reading_issue(issue: Issue, read: Reader) -> Play:
    """Opens an issue, reads all of it and answers.

    Args:
      issue: which.
      read: finds the answer in the elements of the page.
    """

    return script.answering(functools.partial(open_issue, issue=issue), read)


def reading_project(project: Project, tabs: tuple[str, ...], read: Reader) -> Play:
    """Opens a page of a project, reads all of it and answers.

    Args:
      project: which.
      tabs: links to follow from its overview.
      read: finds the answer in the elements of the page.
    """

    return script.answering(lambda seen: open_tab(seen, project, *tabs), read)


def row_of(page: list[Node], name: str) -> list[str]:
    """The cells behind the cell with this name, to the end of its row.

    Raises:
      ScriptError: there is none.
    """
    rest = iter(page)
    if not any(node.role == "cell" and name in node.name for node in rest):
        raise script.ScriptError(f"no cell {name!r} on the page")
    cells = []
    for node in rest:
        if node.role == "row":
            break
        if node.role == "cell":
            cells.append(node.name)
    return cells
