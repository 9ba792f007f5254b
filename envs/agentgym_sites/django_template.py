"""Makes the template database of a Django site, and the storage states of its accounts."""

import json
import pathlib
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import call_command
from django.db import transaction

from agentgym_sites import chance, clock
from agentgym_sites.django_server import use_database
from agentgym_sites.episode_database import add_clock
from agentgym_sites.site import storage_state_path

TEMPLATE = "template.sqlite3"


def make_template(folder: pathlib.Path, seed: Callable[[], None]) -> None:
    """Creates `template.sqlite3` in the folder and fills its tables; prints each step."""
    database = folder / TEMPLATE
    use_database(database)
    clock.install_in_signatures()
    with clock.at(clock.EPISODE_START), chance.seed_request(-1):
        _say("making tables")
        call_command("migrate", interactive=False, verbosity=0, run_syncdb=True)
        _say("filling them")
        with transaction.atomic():
            seed()
    add_clock(database)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def save_login(
    folder: pathlib.Path, site_name: str, cookie: str, user: Any, backend: str, path: str = "/"
) -> None:
    """Logs a user in: creates a session in the template and a storage state with its cookie."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = backend
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    target = storage_state_path(folder, site_name)
    target.parent.mkdir(exist_ok=True)
    state = {"cookies": [_cookie(cookie, session.session_key, path)], "origins": []}
    target.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def _cookie(name: str, value: str | None, path: str) -> dict[str, Any]:
    """Returns a cookie in Playwright's format that is valid as long as the browser context."""
    return {
        "name": name,
        "value": value,
        "domain": "127.0.0.1",
        "path": path,
        "expires": -1,
        "httpOnly": True,
        "secure": False,
        "sameSite": "Lax",
    }
