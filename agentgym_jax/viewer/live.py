"""Live page of a run: a small HTTP server for one reader on the same machine."""

import http.server
import pathlib
import sys
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any

from absl import logging

from agentgym_jax.checks import web_access
from agentgym_jax.client.transport import Transport
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer import records
from agentgym_jax.viewer.replays import replay_files
from agentgym_jax.viewer.report import make_bundle, packed, page
from agentgym_jax.viewer.run_summary import open_run, page_of
from agentgym_jax.viewer.worlds import worlds_of


class LiveRun:
    """Data of the live page; `transports` are the servers for replays by environment.

    A trajectory file is read again only after it has changed.
    """

    def __init__(self, folder: RunFolder, transports: Mapping[str, Transport]):
        self._folder = folder
        self.name = folder.path.name
        self._transports = transports
        self._rows: dict[str, list[dict[str, Any]]] = {}  # rows of a file, by `_stamp`
        self._lock = threading.Lock()  # the threads that answer requests share replays and rows

    def version(self) -> str:
        """Returns a text that changes whenever the data of the page change."""
        paths = [self._folder.metrics_path]
        paths += [file.path for file in records.trajectory_files(self._folder.trajectories)]
        paths += replay_files(self._folder)
        stamps = [_stamp(path) for path in paths if path.exists()]
        return f"{len(stamps)}-{hash(tuple(stamps)) & 0xFFFFFFFF:x}"

    def index(self) -> bytes:
        """Returns the compressed summary of the run (`page_of`)."""
        with self._lock:
            version = self.version()
            files = records.trajectory_files(self._folder.trajectories)
            rows = [self._rows_of(file.path) for file in files]
        document = page_of(open_run(self._folder, files, rows))
        return packed(document | {"pieces": [{}], "replayed": [], "version": version})

    def bundle(self, name: str) -> bytes:
        """Returns the episodes and token texts of a file; raises KeyError for an unknown file."""
        bundle = make_bundle(self._file(name))
        pieces = records.token_pieces(self._folder.tokenizer, sorted(bundle.token_ids))
        return packed(bundle.document() | {"pieces": pieces})

    def worlds(self, name: str, row: int) -> bytes:
        """Returns the states along an episode, or null; raises KeyError for an unknown episode."""
        for number, record in enumerate(records.read_records(self._file(name).path)):
            if number == row:
                with self._lock:
                    return packed(worlds_of(record, self._transports))
        raise KeyError(row)

    def _file(self, name: str) -> records.TrajectoryFile:
        """Returns the listed file with this name; a name in a request is never used as a path."""
        files = records.trajectory_files(self._folder.trajectories)
        return {file.name: file for file in files}[name]

    def _rows_of(self, path: pathlib.Path) -> list[dict[str, Any]]:
        stamp = _stamp(path)
        if stamp not in self._rows:
            self._rows[stamp] = list(records.parse_records(path, records.row_of))
        return self._rows[stamp]


def _stamp(path: pathlib.Path) -> str:
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


class _Handler(http.server.BaseHTTPRequestHandler):
    """Handler of GET /, /version, /data/NAME and /worlds/NAME/ROW."""

    server: "LiveServer"
    server_version = "agentgym_view"
    timeout = 60  # seconds for the headers of a request
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the standard library requires this name
        """Answers a request."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        host, origin, authorization = (
            headers[name] if name in headers else "" for name in ("host", "origin", "authorization")
        )
        token = self.server.token
        reason = web_access.refusal(host, origin, own_name=self.server.host, has_token=bool(token))
        if reason:
            self._answer(403, "text/plain", f"{reason}\n".encode())
            return
        if token and not web_access.is_authorized(token, authorization):
            self._answer(401, "text/plain", b"the password is the server's token\n")
            return
        path = urllib.parse.urlsplit(self.path).path
        try:
            kind, body = self._body([urllib.parse.unquote(p) for p in path.split("/")[1:]])
        except (KeyError, ValueError, OSError) as error:  # a file of the run can disappear
            self._answer(404, "text/plain", f"{path}: not found ({error})\n".encode())
            return
        self._answer(200, kind, body)

    def _body(self, parts: list[str]) -> tuple[str, bytes]:
        live = self.server.live
        match parts:
            case [""]:
                return "text/html; charset=utf-8", "".join(page(live.name, is_live=True)).encode()
            case ["version"]:
                return "text/plain", live.version().encode()
            case ["data", "index"]:
                return "application/octet-stream", live.index()
            case ["data", name]:
                return "application/octet-stream", live.bundle(name)
            case ["worlds", name, row]:
                return "application/octet-stream", live.worlds(name, int(row))
        raise KeyError("no such page")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="agentgym_view"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs requests only with --verbosity=1."""
        logging.debug(format, *args)


class LiveServer(http.server.ThreadingHTTPServer):
    """HTTP server for one run; port 0 picks a free one.

    With `token`, requests need it, as the password that a browser asks for.
    """

    daemon_threads = True

    def __init__(self, live: LiveRun, host: str, port: int, token: str = ""):
        super().__init__((host, port), _Handler)
        self.live = live
        self.host = host
        self.token = token

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints the error of a request, unless it says that the browser has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self.host}:{self.server_address[1]}/"
