"""Runs the server of one environment as a process: socket, readiness line, signals, orphans."""

import asyncio
import logging
import os
import signal
import socket
import sys

import uvloop

from agentgym_envs.base.application import Application
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.http_protocol import Deadlines, HttpProtocol, end_overdue

_LOGGER = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PARENT_POLL_SECONDS = 1.0
_DEADLINES = Deadlines()
_SHUTDOWN_SECONDS = 5  # for requests that are being answered


class ServeError(Exception):
    """The server cannot start; the message is for the person at the terminal."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
      ServeError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


async def answer(
    application: Application,
    listener: socket.socket,
    stop: asyncio.Event,
    ready_line: str,
    deadlines: Deadlines = _DEADLINES,
) -> None:
    """Serves on a socket until `stop` is set; then lets the answers under way finish.

    Args:
      application: what is served; entered and left here.
      listener: listening socket; closed at the end.
      stop: asks for the end.
      ready_line: written to stdout when connections are accepted; empty for none.
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


def run(application: Application, name: str, host: str, port: int, parent_pid: int | None) -> None:
    """Serves until SIGTERM, SIGINT or the end of the parent process; then closes everything.

    Args:
      application: what is served.
      name: of the environment, for the readiness line.
      host: address to listen on.
      port: 0 takes a free one.
      parent_pid: process without which this server has no purpose.

    Raises:
      ServeError: the address cannot be used, or the environment cannot run here.
    """
    listener = bind(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    url = f"http://{shown_host}:{listener.getsockname()[1]}"

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for stop_signal in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stop_signal, stop.set)
        # The runner cancels the watch at the end, if it is still there.
        watch = None if parent_pid is None else loop.create_task(_watch(stop, parent_pid))
        await answer(application, listener, stop, f"agentgym_envs {name} ready on {url}")
        del watch

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except SetupError as error:
        raise ServeError(str(error)) from error
    finally:
        listener.close()


async def _watch(stop: asyncio.Event, parent_pid: int) -> None:
    """Asks the server to stop when the process is gone. A killed trainer leaves no server."""
    is_own_parent = os.getppid() == parent_pid
    # An own parent that died is recognised by adoption: its id may still exist as a zombie.
    while _exists(parent_pid) and (not is_own_parent or os.getppid() == parent_pid):
        await asyncio.sleep(_PARENT_POLL_SECONDS)
    _LOGGER.warning("process %d is gone: stopping", parent_pid)
    stop.set()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it exists and belongs to someone else
    return True
