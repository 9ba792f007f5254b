"""Runs the server of one environment as a process: socket, readiness line, signals, orphans."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import uvicorn

_LOGGER = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PARENT_POLL_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 120  # a client that thinks between two steps keeps its connection
_SHUTDOWN_SECONDS = 5  # for requests that are being answered


class ServeError(Exception):
    """The server cannot start; the message is for the person at the terminal."""


class _Server(uvicorn.Server):
    """uvicorn that says on stdout when it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready_line: str):
        super().__init__(config)
        self._ready_line = ready_line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(self._ready_line + "\n")
            sys.stdout.flush()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
      ServeError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit it: head and body of an answer are two writes, and the second
    # one would wait 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror or error}. "
            "Choose another --port; 0 takes a free one."
        ) from error
    return listener


def check_exposure(host: str, token: str | None) -> None:
    """Refuses to serve other machines without a token.

    Raises:
      ServeError: the host is not loopback and there is no token.
    """
    if host not in LOOPBACK and token is None:
        raise ServeError(
            f"--host {host} lets other machines in, and anyone there could use this server. "
            "Give --token-file, or keep --host 127.0.0.1."
        )


def run(app: Any, name: str, host: str, port: int, parent_pid: int | None) -> None:
    """Serves until SIGTERM, SIGINT or the end of the parent process; then closes everything.

    Args:
      app: ASGI application.
      name: of the environment, for the readiness line.
      host: address to listen on.
      port: 0 takes a free one.
      parent_pid: process without which this server has no purpose.

    Raises:
      ServeError: the address cannot be used.
    """
    listener = bind(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    url = f"http://{shown_host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=1024,
    )
    server = _Server(config, f"agentgym_envs {name} ready on {url}")
    # uvicorn stops on these signals and then raises them again for the handlers installed
    # here: these do nothing, so that a server that was asked to stop exits with status 0.
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda number, frame: None)
    if parent_pid is not None:
        threading.Thread(
            target=_stop_with_parent, args=(server, parent_pid), name="parent-watch", daemon=True
        ).start()
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        listener.close()


def _stop_with_parent(server: uvicorn.Server, parent_pid: int) -> None:
    """Asks the server to stop when the process is gone. A killed trainer leaves no server."""
    is_own_parent = os.getppid() == parent_pid
    # An own parent that died is recognised by adoption: its id may still exist as a zombie.
    while _exists(parent_pid) and (not is_own_parent or os.getppid() == parent_pid):
        time.sleep(_PARENT_POLL_SECONDS)
    _LOGGER.warning("process %d is gone: stopping", parent_pid)
    server.should_exit = True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it exists and belongs to someone else
    return True
