"""Tasks that create and change things in Redmine: one function for each template."""

from collections.abc import Generator

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.redmine_plays import (
    issue_address,
    open_issue,
    open_tab,
    project_address,
    project_of,
)
from agentgym_envs.webarena.embedded.script import Script
from agentgym_envs.webarena.embedded.task import Instance, all_of, page_has, page_is
from agentgym_envs.webarena.sites.redmine import issues, pages
from agentgym_envs.webarena.sites.redmine.issues import Issue
from agentgym_envs.webarena.sites.redmine.pages import full_name
from agentgym_envs.webarena.sites.redmine.projects import Project

NEXT_ISSUE = len(issues.issues()) + 1  # number of the next issue
NEXT_NEWS = len(pages.news()) + 1


def _values(issue: Issue) -> dict[str, object]:
    return {"subject": issue.subject, "project": project_of(issue).name}


def _text(selector: str) -> str:
    return f"document.querySelector('{selector}').innerText.trim()"


def _field(name: str) -> str:
    """The value of a field on the page of an issue."""
    return _text(f".{name}.attribute .value")


def create(project: Project, tracker: str, priority: str, subject: str) -> Instance:
    """A new issue."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_tab(observation, project, "Issues", "New issue")
        if tracker != "Bug":  # the one that is chosen already
            observation = yield from script.choose(observation, "Tracker *", tracker)
        observation = yield from script.fill(observation, "Subject *", subject)
        observation = yield from script.choose(observation, "Priority *", priority)
        yield from script.click(observation, "button", "Create")
        yield script.stop()

    url = f"__GITLAB__/issues/{NEXT_ISSUE}"
    return Instance(
        {"project": project.name, "tracker": tracker, "priority": priority, "subject": subject},
        all_of(
            page_is(url, _text(".subject h3"), subject),
            page_is(url, _text("#content h2"), f"{tracker} #{NEXT_ISSUE}"),
            page_is(url, _field("priority"), priority),
            page_has(url, project.name, locator=_text("#header h1")),
        ),
        play,
    )


def _edit(observation: str, issue: Issue) -> Script:
    """Opens the form below an issue."""
    observation = yield from open_issue(observation, issue)
    return (yield from script.click(observation, "link", "Edit"))


def comment(issue: Issue, text: str) -> Instance:
    """A new comment."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from _edit(observation, issue)
        observation = yield from script.fill(observation, "", text, after="Notes")
        yield from script.click(observation, "button", "Submit")
        yield script.stop()

    return Instance(
        _values(issue) | {"text": text},
        page_has(issue_address(issue), text, locator=_text("#history")),
        play,
    )


def _choosing(issue: Issue, field: str, option: str):
    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from _edit(observation, issue)
        if script.find(observation, "combobox", field) is None:  # the page shows the notes
            observation = yield "scroll [up]"
        observation = yield from script.choose(observation, field, option)
        yield from script.click(observation, "button", "Submit")
        yield script.stop()

    return play


def status(issue: Issue, name: str) -> Instance:
    """Another status."""
    return Instance(
        _values(issue) | {"status": name},
        page_is(issue_address(issue), _field("status"), name),
        _choosing(issue, "Status *", name),
    )


def assign(issue: Issue, person: str) -> Instance:
    """Another assignee."""
    name = full_name(person)
    return Instance(
        _values(issue) | {"person": name},
        page_is(issue_address(issue), _field("assigned-to"), name),
        _choosing(issue, "Assignee", name),
    )


def target_version(issue: Issue, name: str) -> Instance:
    """Another version."""
    return Instance(
        _values(issue) | {"version": name},
        page_is(issue_address(issue), _field("fixed-version"), name),
        _choosing(issue, "Target version", name),
    )


def log_time(issue: Issue, hours: float) -> Instance:
    """Hours of today."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_issue(observation, issue)
        observation = yield from script.click(observation, "link", "Log time")
        observation = yield from script.fill(observation, "Hours *", str(hours))
        observation = yield from script.choose(observation, "Activity *", "Development")
        yield from script.click(observation, "button", "Create")
        yield script.stop()

    total = f"{issue.hours + hours:.2f} h"
    return Instance(
        _values(issue) | {"hours": hours},
        page_has(issue_address(issue), total, locator=_field("spent-time")),
        play,
    )


def watch(issue: Issue) -> Instance:
    """The agent watches an issue."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_issue(observation, issue)
        yield from script.click(observation, "link", "Watch")
        yield script.stop()

    here = _text(f".issue-{issue.number}-watcher")
    return Instance(_values(issue), page_is(issue_address(issue), here, "Unwatch"), play)


def new_version(project: Project, name: str, due: str) -> Instance:
    """A new version."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_tab(observation, project, "Roadmap", "New version")
        observation = yield from script.fill(observation, "Name *", name)
        observation = yield from script.fill(observation, "Due date", due, role="Date|textbox")
        yield from script.click(observation, "button", "Create")
        yield script.stop()

    here = f"[...document.querySelectorAll('article')].find(a => a.querySelector('h3').innerText.startsWith('{name}')).innerText"
    return Instance(
        {"project": project.name, "name": name, "due": due},
        page_has(project_address(project, "/roadmap"), due, locator=here),
        play,
    )


def add_news(project: Project, title: str, summary: str, text: str) -> Instance:
    """A new announcement."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_tab(observation, project, "News", "Add news")
        observation = yield from script.fill(observation, "Title *", title)
        observation = yield from script.fill(observation, "Summary", summary)
        observation = yield from script.fill(observation, "Description *", text)
        yield from script.click(observation, "button", "Create")
        yield script.stop()

    return Instance(
        {"project": project.name, "title": title, "summary": summary, "text": text},
        all_of(
            page_has(project_address(project, "/news"), title, locator=_text("#content")),
            page_has(
                f"__GITLAB__/news/{NEXT_NEWS}", title, summary, text, locator=_text("#content")
            ),
        ),
        play,
    )


def rewrite_page(project: Project, text: str) -> Instance:
    """The glossary of the wiki becomes another text."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_tab(observation, project, "Wiki", "Glossary")
        # The first is that of the column at the side, which may have a text of its own.
        observation = yield from script.click(observation, "link", "Edit", nth=1)
        observation = yield from script.fill(observation, "", text, is_empty=False)
        yield from script.click(observation, "button", "Save")
        yield script.stop()

    return Instance(
        {"project": project.name, "text": text},
        page_is(project_address(project, "/wiki/Glossary"), _text(".wiki-page"), text),
        play,
    )
