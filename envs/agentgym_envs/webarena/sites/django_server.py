"""Serves a Django application on loopback, with a database and a clock for each episode.

A module that serves a site calls `clock.install()` and `chance.install()` first, then imports this
module, then calls `django.setup()` and `serve`.
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

from agentgym_envs.webarena.sites import clock, episode_server
from agentgym_envs.webarena.sites.content import Content
from agentgym_envs.webarena.sites.episode_database import EpisodeDatabases
from agentgym_envs.webarena.sites.episode_server import (
    Application,
    EpisodeApplication,
    StaticFiles,
)


def database_settings() -> dict[str, Any]:
    """`DATABASES["default"]` of a site; the name is set for each request."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "no-episode.sqlite3",
        "ATOMIC_REQUESTS": True,
        "CONN_MAX_AGE": 0,  # the next request of this thread may belong to another episode
        "OPTIONS": {
            # An episode's database lives minutes: it need not survive a power cut.
            "init_command": "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;",
            "timeout": 20,
        },
    }


def use_database(path: pathlib.Path) -> None:
    """Lets this thread's Django connection speak to a database file."""
    connection = connections["default"]
    connection.close()
    # The dict is shared by the connections of all threads, so it is replaced and not changed.
    connection.settings_dict = {**connection.settings_dict, "NAME": str(path)}


class _Handler(WSGIRequestHandler):
    # Head and body go out as two packets; without this the second waits for the first's receipt.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for each request would fill the disk."""


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
    """Serves until SIGTERM or SIGINT.

    Args:
      arguments: of `episode_server.parse_arguments`.
      content: comparison of the site's tables.
      wrap: puts more WSGI around Django's application.
      warm_up: paths to ask for before the first request is taken.
    """
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
