"""Serves a WSGI application on the loopback interface, with a database and a clock per episode."""

import argparse
import io
import json
import mimetypes
import pathlib
import queue
import re
import signal
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from wsgiref.simple_server import WSGIServer

from agentgym_sites import chance, clock
from agentgym_sites.episode_database import EpisodeDatabases, next_second
from agentgym_sites.parent import end_with
from agentgym_sites.site import EPISODE_HEADER, EPISODE_PATH, HEALTH_PATH

_EPISODE_KEY = "HTTP_" + EPISODE_HEADER.upper().replace("-", "_")
_WARM_UP = "warm-up"
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]
# Pattern of valid names of static files. It excludes unsafe characters, empty parts of paths, and
# names that are too long for a file system.
_STATIC_NAME = re.compile(r"(?=.{1,200}\Z)[\w@+ .-]+(?:/[\w@+ .-]+)*", re.ASCII)
_STATIC_SECONDS = 7 * 24 * 3600

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class StaticFiles:
    """Static files of an application, cached in memory, because only some dozens are used and they
    never change.
    """

    def __init__(self, prefix: str, find: Callable[[str], str | pathlib.Path | None]):
        self.prefix = prefix
        self._find = find
        self._files: dict[str, tuple[bytes, str]] = {}

    def answer(self, name: str, start_response: StartResponse) -> Iterable[bytes]:
        """Sends a file, or status 404 if there is no file."""
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
        """Returns the path of a file; None if the name is unsafe or no file has this name."""
        if not _STATIC_NAME.fullmatch(name) or ".." in name.split("/"):
            return None
        found = self._find(name)
        return pathlib.Path(found) if found and pathlib.Path(found).is_file() else None


class EpisodeApplication:
    """WSGI application that answers health checks, sends static files, and ends or compares
    episodes. All other requests go to the site's application, with the episode's database.
    """

    def __init__(
        self,
        application: Application,
        databases: EpisodeDatabases,
        static: StaticFiles,
        use_database: Callable[[pathlib.Path], None],
    ):
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
        if path == "/favicon.ico":  # browsers may request the icon at any time
            return plain_answer(start_response, "404 Not Found", "no icon")
        try:
            if path.startswith(EPISODE_PATH):
                return self._episode(environ, start_response)
            return self._serve(environ, start_response)
        except ValueError as error:
            return plain_answer(start_response, "400 Bad Request", str(error))

    def _episode(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answers requests that end an episode or ask for its changes.

        Scripts of a page have no access, because the browser adds a header that is refused here:
        `X-Episode` to requests of pages, and `Origin` to every DELETE of a page or a web worker.
        """
        method = environ["REQUEST_METHOD"]
        if _EPISODE_KEY in environ or "HTTP_ORIGIN" in environ:
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
                f"the request has no episode. Send the header {EPISODE_HEADER}: <id>; every id has a "
                "separate copy of the site"
            )
        with self._databases.opened(environ[_EPISODE_KEY]) as database:
            self._use_database(database)
            seconds = next_second(database)
            with clock.at(clock.episode_time(seconds)), chance.seed_request(seconds):
                return self._complete(environ, start_response)

    def _complete(self, environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        """Returns the complete response, because a response that is generated in parts reads the
        database until its last part.
        """
        body = self._application(environ, start_response)
        try:
            return [b"".join(body)]
        finally:
            if hasattr(body, "close"):
                body.close()  # Django releases its connection to the database here.

    def warm_up(self, paths: Sequence[str]) -> None:
        """Requests each page once, so that templates are compiled before the first request of an
        episode.
        """
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
    """Wraps an application so that an internal error returns one line of text.

    Otherwise Trac's error page would show paths and source code of this machine.
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
    """Sends a response of plain text and returns its body."""
    body = text.encode()
    start_response(status, [*_TEXT, ("Content-Length", str(len(body)))])
    return [body]


class ThreadedServer(socketserver.ThreadingMixIn, WSGIServer):
    """WSGI server with one thread per connection."""

    daemon_threads = True
    request_queue_size = 256
    block_on_close = False  # browsers keep connections open without using them


def parse_arguments(description: str) -> argparse.Namespace:
    """Parses the command line of a site's process: prepared, episodes, port, parent_pid."""
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
    """Serves the application until SIGTERM or SIGINT."""
    if parent_pid is not None:
        end_with(parent_pid)
    server.set_app(application)
    application.warm_up(warm_up)
    # shutdown() waits for serve_forever(), which runs in this thread, so a second thread calls it.
    # A handler may interrupt itself, so it takes no lock: it does not start the thread either.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()

    def shut_down() -> None:
        signals.get()
        server.shutdown()

    threading.Thread(target=shut_down, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.put(number))
    server.serve_forever()
    server.server_close()
