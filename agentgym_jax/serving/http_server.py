"""Runs an ASGI application in a thread."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

_MAX_HEAD = 64 * 2**10  # bytes of the first line and headers of a request
_STOP_S = 2  # seconds for open requests when the server stops


class HttpServer:
    """HTTP server in a daemon thread; a context manager."""

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", port: int = 0):
        """Binds the port (0: any free port) and starts serving.

        Raises:
          OSError: The address is in use or cannot be bound.
        """
        self._socket = _bind(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            http="h11",  # httptools has no limit on headers
            h11_max_incomplete_event_size=_MAX_HEAD,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=_STOP_S,
            backlog=2048,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="http", daemon=True
        )
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)

    @classmethod
    def listening(cls, app: ASGIApp, host: str, port: int) -> "HttpServer":
        """Returns the server of a command; raises ValueError that names its flags."""
        with _naming_flags(host, port):
            return cls(app, host, port)

    def stop(self) -> None:
        """Closes the port and ends all requests within a few seconds."""
        self._server.should_exit = True
        self._thread.join(2 * _STOP_S)
        self._server.force_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> "HttpServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_free(host: str, port: int) -> None:
    """Raises the error of `HttpServer.listening` before a command loads its model, in minutes."""
    with _naming_flags(host, port):
        _bind(host, port).close()


@contextlib.contextmanager
def _naming_flags(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot listen on --host={host} --port={port} ({error}): give another --port, or "
            "--port=0 for a free one"
        ) from error


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except UnicodeError as error:
        bound.close()
        raise OSError(f"{host!r} is no host name") from error
    except OSError:
        bound.close()
        raise
    return bound
