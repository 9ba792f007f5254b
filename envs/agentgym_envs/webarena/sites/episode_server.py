"""Serves a WSGI application on loopback, with a database and a clock for each episode."""

import argparse
import io
import json
import mimetypes
import pathlib
import re
import signal
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from wsgiref.simple_server import WSGIServer

from agentgym_envs.webarena.sites import chance, clock
from agentgym_envs.webarena.sites.episode_database import EpisodeDatabases, next_second
from agentgym_envs.webarena.sites.parent import end_with
from agentgym_envs.webarena.sites.site import EPISODE_HEADER, EPISODE_PATH, HEALTH_PATH

_EPISODE_KEY = "HTTP_" + EPISODE_HEADER.upper().replace("-", "_")
_WARM_UP = "warm-up"
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]
# Below the prefix: no other characters, no empty parts, not too long for a file system.
_STATIC_NAME = re.compile(r"(?=.{1,200}\Z)[\w@+ .-]+(?:/[\w@+ .-]+)*", re.ASCII)
_STATIC_SECONDS = 7 * 24 * 3600

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class StaticFiles:
    """The files of an application, kept in memory: some dozens are used, and never change."""

    def __init__(self, prefix: str, find: Callable[[str], str | pathlib.Path | None]):
        """Knows no file yet.

        Args:
          prefix: that their addresses begin with.
          find: the path of a file by the rest of its address; None if there is none.
        """
        self.prefix = prefix
        self._find = find
        self._files: dict[str, tuple[bytes, str]] = {}

    def answer(self, name: str, start_response: StartResponse) -> Iterable[bytes]:
        """Sends a file.

        Args:
          name: below the prefix.
          start_response: WSGI's.
        """
        if name not in self._files:
            found = self._file(name)
            if found is None:
                return plain_answer(start_response, "404 Not Found", "no such file")
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            self._files[name] = (found.read_bytes(), kind)
        content, kind = self._files[name]
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", f"public, max-age={_STATIC_SECONDS}, immutable"),
        ]
        start_response("200 OK", headers)
        return [content]

    def _file(self, name: str) -> pathlib.Path | None:
        """Returns the path of a file, or None for names that lead elsewhere or nowhere."""
        if not _STATIC_NAME.fullmatch(name) or ".." in name.split("/"):
            return None
        found = self._find(name)
        return pathlib.Path(found) if found and pathlib.Path(found).is_file() else None


class EpisodeApplication:
    """WSGI: health, static files, the end of an episode; everything else with its database."""

    def __init__(
        self,
        application: Application,
        databases: EpisodeDatabases,
        static: StaticFiles,
        use_database: Callable[[pathlib.Path], None],
    ):
        """Wraps a site's application.

        Args:
          application: the site's.
          databases: of the episodes.
          static: the files that need no episode.
          use_database: lets this thread's application speak to a database file.
        """
        self._application = application
        self._databases = databases
        self._static = static
        self._use_database = use_database

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answers one request."""
        path = environ["PATH_INFO"]
        if path == HEALTH_PATH:
            return plain_answer(start_response, "200 OK", "ok")
        if path.startswith(self._static.prefix):
            return self._static.answer(path.removeprefix(self._static.prefix), start_response)
        if path == "/favicon.ico":  # browsers ask for it when they please
            return plain_answer(start_response, "404 Not Found", "no icon")
        try:
            if path.startswith(EPISODE_PATH):
                return self._episode(environ, start_response)
            return self._serve(environ, start_response)
        except ValueError as error:
            return plain_answer(start_response, "400 Bad Request", str(error))

    def _episode(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Ends an episode or tells what it changed; not to a browser, which sends the header."""
        method = environ["REQUEST_METHOD"]
        if _EPISODE_KEY in environ:
            return plain_answer(start_response, "404 Not Found", "no such page")
        episode = environ["PATH_INFO"].removeprefix(EPISODE_PATH)
        if method == "GET":
            return plain_answer(
                start_response, "200 OK", json.dumps(self._databases.changes(episode))
            )
        if method != "DELETE":
            return plain_answer(start_response, "405 Method Not Allowed", "use GET or DELETE")
        self._databases.remove(episode)
        return plain_answer(start_response, "204 No Content", "")

    def _serve(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if _EPISODE_KEY not in environ:
            raise ValueError(
                f"which episode is this? Send the header {EPISODE_HEADER}: <id>; every id has a "
                "copy of the site of its own"
            )
        with self._databases.opened(environ[_EPISODE_KEY]) as database:
            self._use_database(database)
            seconds = next_second(database)
            with clock.at(clock.episode_time(seconds)), chance.of_request(seconds):
                return self._complete(environ, start_response)

    def _complete(self, environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        """The whole answer: pages that are made while they are sent read the database, too."""
        body = self._application(environ, start_response)
        try:
            return [b"".join(body)]
        finally:
            if hasattr(body, "close"):
                body.close()  # Django gives its connection back here

    def warm_up(self, paths: Sequence[str]) -> None:
        """Asks for pages once, so that templates are compiled before the first visitor comes."""
        for path in paths:
            environ = {
                "REQUEST_METHOD": "GET",
                "PATH_INFO": path,
                "QUERY_STRING": "",
                "SERVER_NAME": "127.0.0.1",
                "SERVER_PORT": "80",
                "wsgi.url_scheme": "http",
                "wsgi.input": io.BytesIO(),
                "wsgi.run_once": False,
                _EPISODE_KEY: _WARM_UP,
            }
            list(self(environ, lambda *_: lambda _: None))
        self._databases.remove(_WARM_UP)


def without_tracebacks(application: Application) -> Application:
    """Answers an internal error with one line.

    Trac shows paths and source code of this machine otherwise.

    Args:
      application: The site's.
    """

    def run(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        statuses: list[str] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            statuses.append(status)
            if status.startswith("5"):
                return lambda data: None
            return start_response(status, headers, exc_info)

        body = application(environ, start)
        if statuses and statuses[-1].startswith("5"):
            if hasattr(body, "close"):
                body.close()
            return plain_answer(
                start_response, "500 Internal Server Error", "the site made a mistake"
            )
        return body

    return run


def plain_answer(start_response: StartResponse, status: str, text: str) -> list[bytes]:
    """Sends a line of text."""
    body = text.encode()
    start_response(status, [*_TEXT, ("Content-Length", str(len(body)))])
    return [body]


class ThreadedServer(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 256
    block_on_close = False  # browsers keep connections open without using them


def parse_arguments(description: str) -> argparse.Namespace:
    """The command line that every site in Python has: prepared, episodes, port, parent_pid."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--prepared", type=pathlib.Path, required=True, help="folder of the template"
    )
    parser.add_argument("--episodes", type=pathlib.Path, required=True, help="folder of the copies")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, help="stop when this process is gone")
    return parser.parse_args()


def serve(
    server: WSGIServer,
    application: EpisodeApplication,
    *,
    parent_pid: int | None,
    warm_up: Sequence[str],
) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
      server: that listens.
      application: to serve.
      parent_pid: process without which this one ends.
      warm_up: paths to ask for before the first request is taken.
    """
    if parent_pid is not None:
        end_with(parent_pid)
    server.set_app(application)
    application.warm_up(warm_up)
    for number in (signal.SIGTERM, signal.SIGINT):
        # shutdown() waits for serve_forever(), which runs in this very thread.
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()
