"""Serves a Django application on the loopback interface, with a database and a clock per episode.

A module that serves a site first calls `clock.install()` and `chance.install()`. It then imports
this module, and finally calls `django.setup()` and `serve`.
"""

import argparse
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.db import connections

from agentgym_sites import clock, episode_server
from agentgym_sites.content import Content
from agentgym_sites.episode_database import EpisodeDatabases
from agentgym_sites.episode_server import Application, EpisodeApplication, StaticFiles


def database_settings() -> dict[str, Any]:
    """Returns `DATABASES["default"]` of a site; its file name is set for each request."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "no-episode.sqlite3",
        "ATOMIC_REQUESTS": True,
        "CONN_MAX_AGE": 0,  # the next request of this thread may be from another episode
        "OPTIONS": {
            # An episode's database is used only for minutes and need not survive a power failure.
            "init_command": "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;",
            "timeout": 20,
        },
    }


def use_database(path: pathlib.Path) -> None:
    """Connects Django in this thread to a database file."""
    connection = connections["default"]
    connection.close()
    # The threads' connections share the dictionary, so the dictionary is replaced instead of
    # changed.
    connection.settings_dict = {**connection.settings_dict, "NAME": str(path)}


class _Handler(WSGIRequestHandler):
    # The headers and the body of a response are two packets. With Nagle's algorithm, the body would
    # not be sent before the client acknowledges the headers.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Drops the message, because one line per request would fill the disk."""


class _Server(ThreadedWSGIServer):
    request_queue_size = 256
    block_on_close = False  # browsers keep connections open without using them


def serve(
    arguments: argparse.Namespace,
    *,
    content: Content,
    wrap: Callable[[Application], Application] = lambda application: application,
    warm_up: Sequence[str] = ("/",),
) -> None:
    """Serves the site until SIGTERM or SIGINT."""
    clock.install_in_signatures()
    application = EpisodeApplication(
        wrap(get_wsgi_application()),
        EpisodeDatabases(arguments.prepared / "template.sqlite3", arguments.episodes, content),
        StaticFiles(settings.STATIC_URL, finders.find),
        use_database,
    )
    episode_server.serve(
        _Server(("127.0.0.1", arguments.port), _Handler),
        application,
        parent_pid=arguments.parent_pid,
        warm_up=warm_up,
    )
