"""Wiki pages of the projects."""

import dataclasses

from agentgym_sites.trac.projects import PEOPLE, PROJECTS, Project


@dataclasses.dataclass(frozen=True)
class WikiPage:
    """A page of a project's wiki, written in Textile.

    Attributes:
      title: Title with underscores, as in addresses.
      when: ISO time of the last change.
      text: Text in Textile.
    """

    project: str
    title: str
    author: str
    when: str
    text: str


def full_name(login: str) -> str:
    """Returns the first and last name of a person."""
    return " ".join(PEOPLE[login])


def wiki_pages() -> tuple[WikiPage, ...]:
    """Returns the wiki pages of all projects."""
    return tuple(page for project in PROJECTS for page in _wiki(project))


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

# All tickets of the milestone are closed or moved to the next one.
# {full_name(_manager(project))} signs the release notes.
# The build is published and announced in {project.channel}.
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
