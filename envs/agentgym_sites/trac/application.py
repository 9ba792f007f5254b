"""Serves Trac with one Trac environment per episode.

The environments share settings and have separate databases.
"""

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

from agentgym_sites import episode_server
from agentgym_sites.episode_database import SUFFIX, EpisodeDatabases
from agentgym_sites.episode_server import EpisodeApplication, StaticFiles
from agentgym_sites.trac.build import ENVIRONMENT, TEMPLATE
from agentgym_sites.trac.content import CONTENT
from agentgym_sites.trac.login import with_login_form

_STATIC = "/chrome/"
_COMMON = "common/"  # the only folder below the prefix whose files are served
_HTDOCS = pathlib.Path(trac.__file__).parent / "htdocs"
# maximum number of open environments; closed environments are opened again on demand
_MOST_OPEN = 64
_PAGES = ("/", "/ticket/1", "/newticket", "/roadmap", "/search?q=none", "/report")


class CompiledTemplates(jinja2.BytecodeCache):
    """Cache of compiled templates that all environments share, because compiling a template takes
    0.1 s.
    """

    def __init__(self) -> None:
        """Creates an empty cache."""
        self._codes: dict[tuple[object, ...], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Loads the code of a template if it is in the cache."""
        known = self._codes.get(_identity(bucket))
        if known is not None:
            bucket.code = known

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Stores the code of a template."""
        assert bucket.code is not None
        self._codes[_identity(bucket)] = bucket.code


def _identity(bucket: Bucket) -> tuple[object, ...]:
    # Trac has two sets of templates, for pages and for plain text. Each set escapes special
    # characters in a different way.
    return bucket.key, bucket.checksum, bucket.environment.autoescape


class EpisodeEnvironments(EpisodeDatabases):
    """Databases of the episodes, and the Trac environments that use them.

    Trac caches data in its environment object, so two episodes cannot share an environment.
    """

    def __init__(self, prepared: pathlib.Path, folder: pathlib.Path):
        """Creates the object without opening an environment."""
        super().__init__(prepared / TEMPLATE, folder, CONTENT)
        self._settings = (prepared / ENVIRONMENT).absolute()
        self._folder = folder.absolute()
        self._opening = threading.Lock()
        self._open: collections.OrderedDict[pathlib.Path, Environment] = collections.OrderedDict()
        self._chosen = threading.local()

    def use(self, database: pathlib.Path) -> None:
        """Selects the environment with this database for the current thread."""
        with self._opening:
            if database not in self._open:
                self._open[database] = self._environment(database)
            self._open.move_to_end(database)
            self._chosen.environment = self._open[database]
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)

    def chosen(self, *_: object, **__: object) -> Environment:
        """Returns the environment selected for the current thread; replaces Trac's
        `open_environment`.
        """
        CacheManager(self._chosen.environment).reset_metadata()
        return self._chosen.environment

    def remove(self, episode: str) -> None:
        """Removes an episode's database and environment; does nothing if they do not exist."""
        super().remove(episode)
        with self._opening:
            self._open.pop(self._folder / (episode + SUFFIX), None)

    def _environment(self, database: pathlib.Path) -> Environment:
        environment = Environment(str(self._settings))
        # The changed setting is not saved, because all episodes share the file of settings.
        address = f"sqlite:{database}?synchronous=OFF&journal_mode=MEMORY"
        environment.config.set("trac", "database", address)
        # All environments use the same logger, and each environment adds a handler to the logger.
        for handler in environment.log.handlers[1:]:
            environment.log.removeHandler(handler)
        return environment


class _Handler(WSGIRequestHandler):
    # The headers and the body of a response are two packets. With Nagle's algorithm, the body would
    # not be sent before the client acknowledges the headers.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Drops the message, because one line per request would fill the disk."""


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
    """Makes all environments share the loaded components and compiled templates.

    Opening an environment then takes 10 ms instead of 500 ms.
    """
    Environment(
        str(settings)
    ).shutdown()  # imports Trac's modules, which requires a search through all packages
    trac.env.load_components = lambda *_: None
    chrome.jinja2env = functools.partial(chrome.jinja2env, bytecode_cache=CompiledTemplates())


def serve(arguments: argparse.Namespace) -> None:
    """Serves Trac until SIGTERM or SIGINT."""
    environments = EpisodeEnvironments(arguments.prepared, arguments.episodes)
    web.open_environment = environments.chosen
    # Disables Trac's pool of connections, which all environments share. Closing the connections of
    # one environment would also close connections that other threads use. A connection that remains open would
    # serve a later episode with the same id.
    SQLiteConnection.poolable = False
    share_what_is_loaded(arguments.prepared / ENVIRONMENT)
    application = EpisodeApplication(
        with_login_form(episode_server.without_tracebacks(_dispatch)),
        environments,
        StaticFiles(_STATIC, _static),
        environments.use,
    )
    server = episode_server.ThreadedServer(("127.0.0.1", arguments.port), _Handler)
    # Trac collects garbage after each request, which is slow if the collection includes all loaded
    # modules.
    gc.freeze()
    episode_server.serve(server, application, parent_pid=arguments.parent_pid, warm_up=_PAGES)
