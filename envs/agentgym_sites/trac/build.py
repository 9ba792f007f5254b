"""Builds the template of Trac: `python -m agentgym_sites.trac.build FOLDER`."""

import contextlib
import datetime
import json
import pathlib
import shutil
import sqlite3
import sys
from collections.abc import Iterable

from agentgym_envs import data_files
from agentgym_sites import clock
from agentgym_sites.episode_database import add_clock
from agentgym_sites.site import storage_state_path
from agentgym_sites.trac import present, tables, tickets
from agentgym_sites.trac.projects import AGENT, PEOPLE, PROJECTS

# name of the folder with the settings; the database is a file next to this folder
ENVIRONMENT = "environment"
TEMPLATE = "template.sqlite3"
_COOKIES = {
    "trac_auth": "8a4f2c61e09b4d7793f5d0c2b6a81e37",
    "trac_form_token": "c0ffee5eed5eed5eed5eed02",
}
_MAKER = "larkspur"  # author of the reports that Trac provides

_SETTINGS = data_files.beside(__file__)


def main() -> None:
    """Builds the template in the folder given as the only argument."""
    folder = pathlib.Path(sys.argv[1])
    present.install()
    from trac.env import Environment

    options = [
        (section, name, value)
        for section, values in _SETTINGS["options"].items()
        for name, value in values.items()
    ]
    with clock.at(clock.EPISODE_START):
        made = Environment(str(folder / ENVIRONMENT), create=True, options=options)
        made.shutdown()
    shutil.move(folder / ENVIRONMENT / "db" / "trac.db", folder / TEMPLATE)
    with contextlib.closing(sqlite3.connect(folder / TEMPLATE)) as connection:
        with connection:
            _seed(connection)
    add_clock(folder / TEMPLATE)
    with contextlib.closing(sqlite3.connect(folder / TEMPLATE)) as connection:
        connection.execute("VACUUM")
    _save_login(folder)
    sys.stdout.write("made and filled the database\n")


def _seed(connection: sqlite3.Connection) -> None:
    """Writes the tables with SQL, because Trac's own functions would store the current time."""

    def fill(table: str, rows: Iterable[tuple], *, empties: bool = True) -> None:
        rows = list(rows)
        if empties:
            connection.execute(f"DELETE FROM {table}")
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    permissions = _SETTINGS["permissions"].items()
    fill("permission", ((user, action) for user, actions in permissions for action in actions))
    fill("session", ((login, 1, 0) for login in PEOPLE))
    fill("session_attribute", ((login, 1, "name", " ".join(PEOPLE[login])) for login in PEOPLE))
    fill("auth_cookie", [(_COOKIES["trac_auth"], AGENT, "", _seconds(clock.EPISODE_START))])
    fill("component", ((each.name, "", each.description) for each in PROJECTS))
    fill("milestone", map(_milestone, tables.milestones()))
    connection.execute("DELETE FROM version")
    fill("wiki", map(_wiki_page, tables.wiki_pages()))
    fill("ticket", map(_ticket, tickets.tickets()))
    fill("ticket_change", (row for each in tickets.tickets() for row in _changes(each)))
    connection.execute("UPDATE report SET author = ?", (_MAKER,))


def _milestone(milestone: tables.Milestone) -> tuple:
    due = _moment(f"{milestone.due} 18:00:00")
    return milestone.name, due, due if milestone.is_completed else 0, milestone.description


def _wiki_page(page: tables.WikiPage) -> tuple:
    return page.name, 1, _moment(page.when), page.author, page.text, "", 0


def _ticket(ticket: tickets.Ticket) -> tuple:
    return (
        ticket.number,
        ticket.type,
        _moment(ticket.created),
        _moment(ticket.updated),
        ticket.component,
        "",  # severity
        ticket.priority,
        ticket.owner,
        ticket.reporter,
        "",  # cc
        "",  # version
        ticket.milestone,
        ticket.status,
        ticket.resolution,
        ticket.summary,
        ticket.description,
        ticket.keywords,
    )


def _changes(ticket: tickets.Ticket) -> Iterable[tuple]:
    for number, change in enumerate(ticket.changes, start=1):
        when = _moment(change.when)
        for field, (before, after) in change.fields.items():
            yield ticket.number, when, change.author, field, before, after
        yield ticket.number, when, change.author, "comment", str(number), change.comment


def _moment(text: str) -> int:
    """Converts an ISO time to microseconds since 1970, the format of Trac."""
    return 1_000_000 * _seconds(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC))


def _seconds(moment: datetime.datetime) -> int:
    return int(moment.timestamp())


def _save_login(folder: pathlib.Path) -> None:
    """Writes the agent's cookies in Playwright's format; the cookies are valid as long as the
    browser context.
    """
    path = storage_state_path(folder, "gitlab")
    path.parent.mkdir()
    cookies = [
        {
            "name": name,
            "value": value,
            "domain": "127.0.0.1",
            "path": "/",
            "expires": -1,
            "httpOnly": True,
            "secure": False,
            "sameSite": "Lax",
        }
        for name, value in _COOKIES.items()
    ]
    path.write_text(json.dumps({"cookies": cookies, "origins": []}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
