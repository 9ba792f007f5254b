"""Tasks on Redmine, made from its seed tables: reading, finding a page, creating and changing."""

from collections.abc import Callable, Iterable, Sequence

from agentgym_envs.webarena.embedded import redmine_reading as reading
from agentgym_envs.webarena.embedded import redmine_writing as writing
from agentgym_envs.webarena.embedded.task import EmbeddedTask, Instance, from_template
from agentgym_envs.webarena.sites.chance import Dice
from agentgym_envs.webarena.sites.redmine import issues
from agentgym_envs.webarena.sites.redmine.issues import Issue
from agentgym_envs.webarena.sites.redmine.projects import AGENT, PROJECTS, Project
from agentgym_envs.webarena.sites.redmine.repositories import COMMITS, commits

_PER_TEMPLATE = 4
_SHOWN_COMMITS = 10  # on the first page of a repository


def tasks() -> list[EmbeddedTask]:
    """All tasks on Redmine."""
    return [*_about_issues(), *_about_projects(), *_finding(), *_changing(), *_adding()]


def _about_issues() -> Iterable[EmbeddedTask]:
    yield from _template(
        0,
        'Who is the assignee of the issue "{subject}" in {project}?',
        map(reading.assignee, _some("assignee", lambda issue: issue.assignee is not None)),
    )
    yield from _template(
        1,
        'When is the issue "{subject}" in {project} due? Answer as YYYY-MM-DD.',
        map(reading.due_date, _some("due", lambda issue: issue.due is not None)),
    )
    yield from _template(
        2,
        'How many hours have been spent on the issue "{subject}" in {project}? '
        "Answer with the number alone, with two decimals.",
        map(reading.hours, _some("hours", lambda issue: issue.hours > 0)),
    )
    yield from _template(
        3,
        'Who made the latest update of the issue "{subject}" in {project}?',
        map(reading.last_update, _some("update", lambda issue: len(issue.changes) > 1)),
    )


def _about_projects() -> Iterable[EmbeddedTask]:
    dice = Dice("redmine tasks: projects")
    yield from _template(
        4,
        "How many open issues of the tracker {tracker} does the project {project} have? "
        "Answer with the number only.",
        [
            reading.open_of_tracker(project, dice.pick(("Bug", "Feature")))
            for project in dice.sample(PROJECTS, _PER_TEMPLATE)
        ],
    )
    yield from _template(
        5,
        "How many open issues of the project {project} are assigned to {person}? "
        "Answer with the number only.",
        [
            reading.open_of_person(project, _busy_person(project))
            for project in dice.sample(PROJECTS, _PER_TEMPLATE)
        ],
    )
    yield from _template(
        6,
        "When is version {version} of {project} due? Answer as YYYY-MM-DD.",
        [
            reading.version_date(
                project, dice.pick([each for each in project.versions if each.status == "open"])
            )
            for project in dice.sample(PROJECTS, _PER_TEMPLATE)
        ],
    )
    yield from _template(
        7,
        "Which role does {person} have in the project {project}?",
        [
            reading.role(project, dice.pick(list(project.roles)))
            for project in dice.sample(PROJECTS, _PER_TEMPLATE)
        ],
    )
    yield from _template(
        8,
        "On which port does {project} listen, according to its wiki? Answer with the number only.",
        map(reading.port, dice.sample(PROJECTS, _PER_TEMPLATE)),
    )
    yield from _template(
        9,
        "Who is on call at night for {project}, according to its wiki?",
        map(reading.on_call, dice.sample(PROJECTS, _PER_TEMPLATE)),
    )
    yield from _template(
        10,
        'Who is the author of the commit "{message}" in the repository of {project}?',
        [
            reading.commit_author(project, dice.pick(commits(project.identifier)[-_SHOWN_COMMITS:]))
            for project in PROJECTS
            if project.identifier in COMMITS
        ],
    )


def _finding() -> Iterable[EmbeddedTask]:
    dice = Dice("redmine tasks: finding")
    yield from _template(
        11,
        'Open the issue "{subject}" of the project {project}.',
        map(reading.open_it, _some("open", lambda issue: True)),
    )
    yield from _template(
        12,
        "Show the list of all open issues of the project {project} that have the priority "
        "{priority}, and no others.",
        [
            reading.open_of_priority(project, dice.pick(("Low", "High")))
            for project in dice.sample(PROJECTS, _PER_TEMPLATE)
        ],
    )
    yield from _template(
        13,
        'Open the page "{title}" of the wiki of {project}.',
        [
            reading.wiki_page(
                project, dice.pick(("Installation", "Operations", "Release process", "Glossary"))
            )
            for project in dice.sample(PROJECTS, _PER_TEMPLATE)
        ],
    )


def _changing() -> Iterable[EmbeddedTask]:
    dice = Dice("redmine tasks: changing")
    yield from _template(
        14,
        'Add the comment "{text}" to the issue "{subject}" in {project}.',
        map(writing.comment, _some("comment", _is_manageable), _COMMENTS),
    )
    yield from _template(
        15,
        'Set the status of the issue "{subject}" in {project} to {status}.',
        map(
            writing.status,
            _some("status", lambda issue: _is_manageable(issue) and issue.status == "New"),
            ("In Progress", "Resolved", "Feedback", "Rejected"),
        ),
    )
    yield from _template(
        16,
        'Assign the issue "{subject}" in {project} to {person}.',
        [
            writing.assign(issue, dice.pick(_others_than(issue.assignee, issue)))
            for issue in _some("assign", _is_manageable)
        ],
    )
    yield from _template(
        17,
        'Make {version} the target version of the issue "{subject}" in {project}.',
        [
            writing.target_version(issue, dice.pick(_open_versions(issue)))
            for issue in _some(
                "version", lambda issue: _is_manageable(issue) and issue.version is None
            )
        ],
    )
    yield from _template(
        18,
        'Log {hours} hours of development for today on the issue "{subject}" in {project}.',
        map(writing.log_time, _some("log time", _is_manageable), (1.5, 2.25, 0.75, 3.5)),
    )
    yield from _template(
        19,
        'Watch the issue "{subject}" in {project}.',
        map(writing.watch, _some("watch", _is_manageable)),
    )


def _adding() -> Iterable[EmbeddedTask]:
    mine = [project for project in PROJECTS if project.roles.get(AGENT) == "Manager"]
    yield from _template(
        20,
        'Create a new issue in {project}: tracker {tracker}, priority {priority}, subject "{subject}".',
        [writing.create(project, *new) for project, new in zip(mine, _NEW_ISSUES, strict=False)],
    )
    yield from _template(
        21,
        "Create the version {name} of the project {project}, due on {due}.",
        [
            writing.new_version(project, *new)
            for project, new in zip(mine, _NEW_VERSIONS, strict=False)
        ],
    )
    yield from _template(
        22,
        'Announce "{title}" in the news of {project}, with the summary "{summary}" and the '
        'description "{text}".',
        [writing.add_news(project, *new) for project, new in zip(mine, _NEW_NEWS, strict=False)],
    )
    yield from _template(
        23,
        'Replace the whole text of the page "Glossary" in the wiki of {project} by "{text}".',
        [
            writing.rewrite_page(project, text)
            for project, text in zip(mine, _NEW_PAGES, strict=False)
        ],
    )


_COMMENTS = (
    "I will look at it on Monday.",
    "The new build solves this for me.",
    "Please send me the settings of your machine.",
    "Moved to the agenda of our next meeting.",
)
_NEW_ISSUES = (
    ("Bug", "High", "Legend covers the harbour map"),
    ("Feature", "Low", "Delivery notes in large print"),
    ("Bug", "Urgent", "Build queue stops at noon"),
    ("Support", "High", "Scanner of the new town hall"),
)
_NEW_VERSIONS = (
    ("3.1", "2024-10-04"),
    ("2.1", "2024-11-15"),
    ("5.1", "2024-12-06"),
    ("3.9", "2024-10-25"),
)
_NEW_NEWS = (
    ("Planned maintenance", "Two hours on Sunday", "The gauges are read again from noon on."),
    ("New colleague", "Welcome, Wren", "Wren joins the ledger team in April."),
    ("More workers", "Builds wait less", "Four more workers have been switched on."),
    ("Training day", "For all town halls", "The training takes place in the large hall."),
)
_NEW_PAGES = (
    "The glossary has moved to the handbook.",
    "Words are explained where they are used.",
    "See the handbook of the build team.",
    "This page is being written anew.",
)


def _template(number: int, text: str, instances: Iterable[Instance]) -> list[EmbeddedTask]:
    return from_template("gitlab", number, text, instances)


def _some(name: str, is_wanted: Callable[[Issue], bool]) -> list[Issue]:
    """Issues for the instances of a template."""
    wanted = [issue for issue in issues.issues() if is_wanted(issue)]
    return Dice(f"redmine tasks: {name}").sample(wanted, _PER_TEMPLATE)


def _project(issue: Issue) -> Project:
    return next(project for project in PROJECTS if project.identifier == issue.project)


def _is_manageable(issue: Issue) -> bool:
    """Open, and in a project that the agent manages."""
    return not issue.is_closed and _project(issue).roles.get(AGENT) == "Manager"


def _busy_person(project: Project) -> str:
    """The member with the most open issues of a project."""
    open_ones = [
        issue.assignee for issue in issues.of_project(project.identifier) if not issue.is_closed
    ]
    return max(project.roles, key=open_ones.count)


def _others_than(login: str | None, issue: Issue) -> Sequence[str]:
    """Members of an issue's project to whom it could be assigned instead."""
    return [
        person
        for person, role in _project(issue).roles.items()
        if role != "Reporter" and person not in (login, AGENT)
    ]


def _open_versions(issue: Issue) -> Sequence[str]:
    return [version.name for version in _project(issue).versions if version.status == "open"]
