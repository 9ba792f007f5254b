"""Wiki pages and news of the projects."""

import dataclasses
import datetime

from agentgym_envs.webarena.sites.redmine.projects import PEOPLE, PROJECTS, Project


@dataclasses.dataclass(frozen=True)
class WikiPage:
    """A page of a project's wiki, in Textile.

    Attributes:
      project: identifier.
      title: with underscores, as in addresses.
      author: login.
      when: ISO time.
      text: Textile.
    """

    project: str
    title: str
    author: str
    when: str
    text: str


@dataclasses.dataclass(frozen=True)
class News:
    """An announcement.

    Attributes:
      project: identifier.
      title: unique in its project.
      summary: one line.
      text: Textile.
      author: login.
      when: ISO time.
    """

    project: str
    title: str
    summary: str
    text: str
    author: str
    when: str


def full_name(login: str) -> str:
    """First and last name."""
    return " ".join(PEOPLE[login])


def wiki_pages() -> tuple[WikiPage, ...]:
    """The pages of all projects."""
    return tuple(page for project in PROJECTS for page in _wiki(project))


def news() -> tuple[News, ...]:
    """The announcements of all projects, oldest first."""
    return tuple(
        sorted(
            (item for project in PROJECTS for item in _news(project)), key=lambda item: item.when
        )
    )


def _manager(project: Project) -> str:
    return next(login for login, role in reversed(project.roles.items()) if role == "Manager")


def _wiki(project: Project) -> list[WikiPage]:
    name, service = project.name, project.identifier
    texts = {
        "Wiki": f"""h1. {name}

{project.description}

* [[Installation]]: how to set up a copy of your own
* [[Operations]]: ports, logs, backups and who to call
* [[Release process]]: from the last fix to the announcement
* [[Glossary]]: our words

Questions are welcome in {project.channel}.
""",
        "Installation": f"""h1. Installation

# Check out the code and read the file README.md.
# Copy settings.example to settings.local and set the name of your database.
# Run @make setup@ and then @make run@.
# Open http://localhost:{project.port}/ in your browser.

A copy of your own never sends messages to customers.
""",
        "Operations": f"""h1. Operations

h2. Network

{name} listens on port {project.port}. The health page is at /health on the same port.

h2. Logs

Logs are kept for {project.retention_days} days in /srv/{service}/logs and then deleted.

h2. At night

The person on call is {full_name(project.on_call)}. Ask in {project.channel} before you restart anything.
""",
        "Release_process": f"""h1. Release process

Releases are made on {project.release_day} mornings, never before a holiday.

# All issues of the version are closed or moved to the next one.
# {full_name(_manager(project))} signs the release notes.
# The build is published and announced under News.
""",
        "Glossary": "h1. Glossary\n\n"
        + "\n".join(
            f"* *{part}*: belongs to {project.categories[index // 2]}."
            for index, part in enumerate(project.components)
        )
        + "\n",
    }
    return [
        WikiPage(service, title, _manager(project), f"2023-03-{day:02} 09:30:00", text)
        for day, (title, text) in enumerate(texts.items(), start=6)
    ]


def _news(project: Project) -> list[News]:
    items = []
    for version in project.versions:
        if version.status == "closed":
            day = datetime.date.fromisoformat(version.due)
            items.append(
                (
                    f"{project.name} {version.name} is out",
                    version.description,
                    f"Version {version.name} was published today. The biggest change: "
                    f"{version.description.lower()}. Thanks to everybody who tested.",
                    day,
                )
            )
    coming = next(version for version in project.versions if version.status == "open")
    items.append(
        (
            f"Freeze for {project.name} {coming.name}",
            f"Last changes until a week before {coming.due}",
            f"The next version of {project.name} is due on {coming.due}. Please finish what is "
            f"assigned to {coming.name} a week before, and ask in {project.channel} if you cannot.",
            datetime.date(2024, 2, 12),
        )
    )
    return [
        News(
            project.identifier,
            title,
            summary,
            text,
            _manager(project),
            f"{day.isoformat()} 10:15:00",
        )
        for title, summary, text, day in items
    ]
