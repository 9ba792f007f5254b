"""Trac with an environment for each episode: the settings of all, and a database of its own."""

import argparse
import collections
import functools
import gc
import pathlib
import threading
from types import CodeType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

import jinja2
import trac
import trac.env
from jinja2.bccache import Bucket
from trac.cache import CacheManager
from trac.db.sqlite_backend import SQLiteConnection
from trac.env import Environment
from trac.web import chrome
from trac.web import main as web

from agentgym_envs.webarena.sites import episode_server
from agentgym_envs.webarena.sites.episode_database import SUFFIX, EpisodeDatabases
from agentgym_envs.webarena.sites.episode_server import (
    EpisodeApplication,
    StaticFiles,
)
from agentgym_envs.webarena.sites.trac.build import ENVIRONMENT, TEMPLATE
from agentgym_envs.webarena.sites.trac.content import CONTENT
from agentgym_envs.webarena.sites.trac.login import with_login_form

_STATIC = "/chrome/"
_COMMON = "common/"  # the only folder below it that has files here
_HTDOCS = pathlib.Path(trac.__file__).parent / "htdocs"
_MOST_OPEN = 64  # environments that are kept; one that was closed is opened again when it is needed
_PAGES = ("/", "/ticket/1", "/newticket", "/roadmap", "/search?q=none", "/report")


class CompiledTemplates(jinja2.BytecodeCache):
    """The templates as code: the environments share it, since compiling one takes 0.1 s."""

    def __init__(self) -> None:
        """Knows none yet."""
        self._codes: dict[tuple[object, ...], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Hands out the code of a template, if it is known."""
        known = self._codes.get(_identity(bucket))
        if known is not None:
            bucket.code = known

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps the code of a template."""
        assert bucket.code is not None
        self._codes[_identity(bucket)] = bucket.code


def _identity(bucket: Bucket) -> tuple[object, ...]:
    # Trac has two sets of templates, for pages and for plain text, which escape differently.
    return bucket.key, bucket.checksum, bucket.environment.autoescape


class EpisodeEnvironments(EpisodeDatabases):
    """The databases of the episodes and Trac's environments that speak to them.

    Trac keeps what it read in its environment, so no two episodes may share one.
    """

    def __init__(self, prepared: pathlib.Path, folder: pathlib.Path):
        """Opens nothing yet.

        Args:
          prepared: what `build` made.
          folder: of the episodes' databases.
        """
        super().__init__(prepared / TEMPLATE, folder, CONTENT)
        self._settings = (prepared / ENVIRONMENT).absolute()
        self._folder = folder.absolute()
        self._opening = threading.Lock()
        self._open: collections.OrderedDict[pathlib.Path, Environment] = collections.OrderedDict()
        self._chosen = threading.local()

    def use(self, database: pathlib.Path) -> None:
        """Lets this thread's Trac speak to a database."""
        with self._opening:
            if database not in self._open:
                self._open[database] = self._environment(database)
            self._open.move_to_end(database)
            self._chosen.environment = self._open[database]
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)

    def chosen(self, *_: object, **__: object) -> Environment:
        """What Trac's `open_environment` answers in this thread."""
        CacheManager(self._chosen.environment).reset_metadata()
        return self._chosen.environment

    def remove(self, episode: str) -> None:
        """Forgets an episode and its environment; no trouble if there is none."""
        super().remove(episode)
        with self._opening:
            self._open.pop(self._folder / (episode + SUFFIX), None)

    def _environment(self, database: pathlib.Path) -> Environment:
        environment = Environment(str(self._settings))
        # In memory alone: nothing writes the file of the settings, which all episodes share.
        address = f"sqlite:{database}?synchronous=OFF&journal_mode=MEMORY"
        environment.config.set("trac", "database", address)
        # All log to one logger, to which each adds a handler.
        for handler in environment.log.handlers[1:]:
            environment.log.removeHandler(handler)
        return environment


class _Handler(WSGIRequestHandler):
    # Head and body go out as two packets; without this the second waits for the first's receipt.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for each request would fill the disk."""


def _dispatch(environ: dict[str, Any], start_response: episode_server.StartResponse):
    environ["trac.env_path"] = "of the episode"  # see EpisodeEnvironments.chosen
    environ["trac.locale"] = "C"
    return web.dispatch_request(environ, start_response)


def _static(name: str) -> pathlib.Path | None:
    if not name.startswith(_COMMON):
        return None
    path = (_HTDOCS / name.removeprefix(_COMMON)).resolve()
    return path if path.is_relative_to(_HTDOCS.resolve()) else None


def share_what_is_loaded(settings: pathlib.Path) -> None:
    """Lets an environment find in memory what another one loaded: it opens in 10 ms and not in 500.

    Args:
      settings: folder of the environment.
    """
    Environment(
        str(settings)
    ).shutdown()  # imports Trac's modules, which looks through all packages
    trac.env.load_components = lambda *_: None
    chrome.jinja2env = functools.partial(chrome.jinja2env, bytecode_cache=CompiledTemplates())


def serve(arguments: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
      arguments: of `episode_server.parse_arguments`.
    """
    environments = EpisodeEnvironments(arguments.prepared, arguments.episodes)
    web.open_environment = environments.chosen
    # The connections that Trac keeps belong to the process: closing those of an environment closes
    # those that other threads use, and kept open they would serve the next episode of the same name.
    SQLiteConnection.poolable = False
    share_what_is_loaded(arguments.prepared / ENVIRONMENT)
    application = EpisodeApplication(
        with_login_form(episode_server.without_tracebacks(_dispatch)),
        environments,
        StaticFiles(_STATIC, _static),
        environments.use,
    )
    server = episode_server.ThreadedServer(("127.0.0.1", arguments.port), _Handler)
    gc.freeze()  # Trac collects garbage after each request, which is slow with all its modules
    episode_server.serve(server, application, parent_pid=arguments.parent_pid, warm_up=_PAGES)
