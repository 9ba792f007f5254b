"""Tasks that read Redmine or look for a page of it: one function for each template."""

from collections.abc import Generator

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.redmine_plays import (
    issue_address,
    open_issue,
    open_tab,
    project_address,
    project_of,
    reading_issue,
    reading_project,
    row_of,
)
from agentgym_envs.webarena.embedded.script import Node, matching
from agentgym_envs.webarena.embedded.task import (
    Instance,
    answer_has,
    answer_is,
    ends_at,
    page_is,
)
from agentgym_envs.webarena.sites.redmine import issues
from agentgym_envs.webarena.sites.redmine.issues import Issue
from agentgym_envs.webarena.sites.redmine.pages import full_name
from agentgym_envs.webarena.sites.redmine.projects import Project, Version
from agentgym_envs.webarena.sites.redmine.repositories import Commit


def _values(issue: Issue) -> dict[str, object]:
    return {"subject": issue.subject, "project": project_of(issue).name}


def assignee(issue: Issue) -> Instance:
    """The person that an issue is assigned to."""
    assert issue.assignee is not None
    read = lambda page: script.value_after(page, "Assignee:", "link")
    return Instance(
        _values(issue), answer_has(full_name(issue.assignee)), reading_issue(issue, read)
    )


def due_date(issue: Issue) -> Instance:
    """The day until which an issue should be done."""
    assert issue.due is not None

    def read(page: list[Node]) -> str:
        # Behind the day of an issue that is late stands by how much.
        return script.value_after(page, "Due date:", "StaticText")[: len("2024-03-01")]

    return Instance(_values(issue), answer_is(issue.due), reading_issue(issue, read))


def hours(issue: Issue) -> Instance:
    """The hours that were spent on an issue."""

    def read(page: list[Node]) -> str:
        return script.value_after(page, "Spent time:", "link").removesuffix(" h")

    return Instance(_values(issue), answer_is(f"{issue.hours:.2f}"), reading_issue(issue, read))


def last_update(issue: Issue) -> Instance:
    """The person who changed an issue last."""

    def read(page: list[Node]) -> str:
        updates = [
            index
            for index, node in enumerate(page)
            if node.role == "heading" and node.name.startswith("Updated by")
        ]
        return next(node.name for node in page[updates[-1] :] if node.role == "link")

    return Instance(
        _values(issue), answer_has(full_name(issue.changes[-1].author)), reading_issue(issue, read)
    )


def open_of_tracker(project: Project, tracker: str) -> Instance:
    """The number of open issues of a tracker, which the overview shows."""
    count = sum(
        issue.tracker == tracker and not issue.is_closed
        for issue in issues.of_project(project.identifier)
    )
    return Instance(
        {"project": project.name, "tracker": tracker},
        answer_is(str(count)),
        reading_project(project, (), lambda page: row_of(page, tracker)[0]),
    )


def open_of_person(project: Project, person: str) -> Instance:
    """The number of somebody's open issues, which the summary shows."""
    count = sum(
        issue.assignee == person and not issue.is_closed
        for issue in issues.of_project(project.identifier)
    )
    name = full_name(person)
    return Instance(
        {"project": project.name, "person": name},
        answer_is(str(count)),
        reading_project(project, ("Summary",), lambda page: row_of(page, name)[0]),
    )


def version_date(project: Project, version: Version) -> Instance:
    """The due date of a version, which the roadmap shows."""

    def read(page: list[Node]) -> str:
        place = next(
            index
            for index, node in enumerate(page)
            if node.role == "heading" and node.name == version.name
        )
        return matching(r"\((\d{4}-\d\d-\d\d)\)")(page[place:])

    return Instance(
        {"project": project.name, "version": version.name},
        answer_is(version.due),
        reading_project(project, ("Roadmap",), read),
    )


def role(project: Project, person: str) -> Instance:
    """The role of a member, which the overview shows."""
    name = full_name(person)

    def read(page: list[Node]) -> str:
        members = [index for index, node in enumerate(page) if node.name == "Members"][-1]
        place = next(
            index
            for index, node in enumerate(page)
            if index > members and node.role == "link" and node.name == name
        )
        labels = [node.name for node in page[members:place] if node.name.endswith(":")]
        return labels[-1].removesuffix(":")

    return Instance(
        {"project": project.name, "person": name},
        answer_is(project.roles[person]),
        reading_project(project, (), read),
    )


def port(project: Project) -> Instance:
    """The port that the wiki tells."""
    return Instance(
        {"project": project.name},
        answer_is(str(project.port)),
        reading_project(project, ("Wiki", "Operations"), matching(r"listens on port (\d+)\.")),
    )


def on_call(project: Project) -> Instance:
    """The person on call that the wiki tells."""
    return Instance(
        {"project": project.name},
        answer_has(full_name(project.on_call)),
        reading_project(project, ("Wiki", "Operations"), matching(r"person on call is ([\w ]+)\.")),
    )


def commit_author(project: Project, commit: Commit) -> Instance:
    """The author of one of the latest commits."""
    message = commit.message.split(" (refs")[0]

    def read(page: list[Node]) -> str:
        place = next(
            index
            for index, node in enumerate(page)
            if node.role == "cell" and node.name.startswith(message)
        )
        return [node.name for node in page[:place] if node.role == "link"][-1]

    return Instance(
        {"project": project.name, "message": message},
        answer_has(full_name(commit.author)),
        reading_project(project, ("Repository",), read),
    )


def open_it(issue: Issue) -> Instance:
    """Ends at the issue."""

    def play(observation: str) -> Generator[str, str, None]:
        yield from open_issue(observation, issue)
        yield script.stop()

    return Instance(_values(issue), ends_at(issue_address(issue)), play)


# The numbers of the listed issues, smallest first.
_LISTED = (
    "[...document.querySelectorAll('table.issues td.id')]"
    ".map(cell => Number(cell.innerText)).sort((a, b) => a - b).join(' ')"
)


def open_of_priority(project: Project, priority: str) -> Instance:
    """Ends at the list of the open issues of a priority, however it was found."""
    wanted = [
        str(issue.number)
        for issue in issues.of_project(project.identifier)
        if issue.priority == priority and not issue.is_closed
    ]

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_tab(observation, project, "Summary")
        yield from script.click(observation, "link", str(len(wanted)), after=priority)
        yield script.stop()

    return Instance(
        {"project": project.name, "priority": priority},
        page_is("last", _LISTED, " ".join(wanted)),
        play,
    )


def wiki_page(project: Project, title: str) -> Instance:
    """Ends at a page of the wiki."""

    def play(observation: str) -> Generator[str, str, None]:
        yield from open_tab(observation, project, "Wiki", title)
        yield script.stop()

    address = project_address(project, f"/wiki/{title.replace(' ', '_')}")
    return Instance({"project": project.name, "title": title}, ends_at(address), play)
