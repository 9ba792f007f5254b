"""Runs the server of one environment: socket, readiness line, signals, exit after its parent."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from agentgym_envs.base.application import Application
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.http_protocol import Deadlines, HttpProtocol, end_overdue
from agentgym_envs.processes import is_gone

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PARENT_POLL_SECONDS = 1.0
_DEADLINES = Deadlines()
_SHUTDOWN_SECONDS = 5  # grace period for pending requests


class ServeError(Exception):
    """Error for a server that cannot start; the message is for the user at the terminal."""


def bind(host: str, port: int) -> socket.socket:
    """Opens a listening socket; port 0 selects a free port.

    Raises:
      ServeError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError, UnicodeError) as error:  # in use, no port, no host name
        listener.close()
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise ServeError(
            f"cannot listen on {host} port {port}: {reason}. "
            "Choose another --port; 0 takes a free one."
        ) from error
    return listener


def check_exposure(host: str, token: str | None) -> None:
    """Rejects a host that is reachable from other machines if there is no token.

    Raises:
      ServeError: The host is not loopback and there is no token.
    """
    if host not in LOOPBACK and token is None:
        raise ServeError(
            f"--host {host} lets other machines in, and anyone there could use this server. "
            "Give --token-file, or keep --host 127.0.0.1."
        )


async def answer(
    application: Application,
    listener: socket.socket,
    stop: asyncio.Event,
    ready_line: str,
    deadlines: Deadlines = _DEADLINES,
) -> None:
    """Serves on a socket until `stop` is set, then finishes pending requests.

    Args:
      application: Application to serve; its lifespan is entered and left here.
      listener: Listening socket, which is closed at the end.
      stop: Event that ends the server when it is set.
      ready_line: Line printed to stdout when connections are accepted; empty for no line.
      deadlines: Times after which connections of slow or silent clients are ended.
    """
    loop = asyncio.get_running_loop()
    connections: set[HttpProtocol] = set()
    async with application.lifespan():
        server = await loop.create_server(
            lambda: HttpProtocol(application, connections, deadlines), sock=listener, backlog=1024
        )
        sweeper = loop.create_task(end_overdue(connections, deadlines))
        if ready_line:
            sys.stdout.write(ready_line + "\n")
            sys.stdout.flush()
        await stop.wait()
        server.close()
        sweeper.cancel()
        for connection in list(connections):
            connection.close()
        deadline = loop.time() + _SHUTDOWN_SECONDS
        while connections and loop.time() < deadline:
            await asyncio.sleep(0.01)


def run(
    application: T,
    name: str,
    host: str,
    port: int,
    parent_pid: int | None,
    answer_with: Callable[[T, socket.socket, asyncio.Event, str], Awaitable[None]],
) -> None:
    """Serves until SIGTERM, SIGINT or the end of the parent process, then closes everything.

    Port 0 selects a free port, which the readiness line contains. `answer_with` serves the
    application on a socket, as `answer` does for AgentGym's protocol.

    Raises:
      ServeError: The address cannot be used, or the environment cannot run on this machine.
    """
    listener = bind(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    url = f"http://{shown_host}:{listener.getsockname()[1]}"

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for stop_signal in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stop_signal, stop.set)
        # If the task `watch` still runs at the end, the runner cancels it.
        watch = None if parent_pid is None else loop.create_task(_watch(stop, parent_pid))
        await answer_with(application, listener, stop, f"agentgym_envs {name} ready on {url}")
        del watch

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except SetupError as error:
        raise ServeError(str(error)) from error
    finally:
        listener.close()


async def _watch(stop: asyncio.Event, parent_pid: int) -> None:
    """Stops the server when its parent process is gone, such as a killed trainer."""
    was_own_parent = os.getppid() == parent_pid
    while not is_gone(parent_pid, was_own_parent):
        await asyncio.sleep(_PARENT_POLL_SECONDS)
    _LOGGER.warning("process %d is gone: stopping", parent_pid)
    stop.set()
