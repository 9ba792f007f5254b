"""People and projects of the invented company that uses Trac."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from agentgym_envs import data_files

AGENT = "robin.hale"  # person who is logged in
PASSWORD = "larkspur-2024"

_DATA = data_files.beside(__file__)
# login -> first and last name
PEOPLE: dict[str, tuple[str, str]] = {
    f"{first.lower()}.{last.lower()}": (first, last)
    for first, last in map(str.split, _DATA["people"])
}


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a project.

    Attributes:
      status: "open", "locked" or "closed".
      due: Due date in ISO format.
    """

    name: str
    status: str
    due: str
    description: str


@dataclasses.dataclass(frozen=True)
class Project:
    """A project and the facts in its wiki.

    Attributes:
      identifier: Identifier in addresses.
      components: Components of the project; tickets are about one of them.
      categories: Categories of tickets; component i belongs to category i // 2.
      versions: Versions in the order of their dates.
      roles: Login -> role.
      port: Port of the service, given in the wiki.
      retention_days: Number of days for which logs are kept, given in the wiki.
      release_day: Weekday of releases, given in the wiki.
      channel: Chat channel for help, given in the wiki.
      on_call: Person who is on call at night, given in the wiki.
    """

    identifier: str
    name: str
    description: str
    components: Sequence[str]
    categories: Sequence[str]
    versions: tuple[Version, ...]
    roles: dict[str, str]
    port: int
    retention_days: int
    release_day: str
    channel: str
    on_call: str


def full_name(login: str) -> str:
    """Returns the first and last name of a person."""
    return " ".join(PEOPLE[login])


def _project(row: dict[str, Any]) -> Project:
    versions = tuple(Version(**version) for version in row.pop("versions"))
    logins = row.pop("logins")
    roles = {login: role for role, members in logins.items() for login in members}
    return Project(**row, versions=versions, roles=roles)


PROJECTS: tuple[Project, ...] = tuple(map(_project, _DATA["projects"]))
