"""Environments in the training process, called through the same client as HTTP servers."""

import contextlib
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.in_process import InProcessServer
from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS

SHIPPED = tuple(ENVIRONMENTS)  # environments of this project, which need no module name


class InProcessTransport:
    """Calls a server object in the present process, without a network or time limits."""

    def __init__(self, server: InProcessServer):
        self._server = server

    def exchange(
        self,
        method: str,
        target: str,
        request: Mapping[str, Any] | None,
        timeout_s: float | None,
        request_id: str = "",
    ) -> tuple[int, bytes]:
        """Calls the server object; `request_id` is ignored, because no request arrives twice."""
        return self._server.exchange(method, target, request)

    def disconnect(self) -> None:
        """Does nothing: there is no connection, and `in_process_servers` closes the server."""


@contextlib.contextmanager
def in_process_servers(
    environments: Sequence[str],
    modules: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    log: pathlib.Path | None = None,
) -> Iterator[dict[str, InProcessTransport]]:
    """Opens environments in this process; the arguments are those of `EmbeddedServers`.

    The file `log` gets the messages of their server, such as the traceback of an error.

    Raises:
      ValueError: An environment does not exist, or cannot run on this machine.
    """
    known = {name: entry.module for name, entry in ENVIRONMENTS.items()} | dict(modules or {})
    unknown = sorted(set(environments) - set(known))
    if unknown:
        raise ValueError(
            f"environment {unknown[0]!r} cannot run in this process; these can: {sorted(ENVIRONMENTS)}"
        )
    with contextlib.ExitStack() as stack:
        if environments and log is not None:
            stack.enter_context(_messages_to(log))
        transports = {}
        for name in environments:
            try:
                served = load_environment(known[name], (options or {}).get(name))
                server = InProcessServer(served)
            except SetupError as error:
                raise ValueError(f"environment {name!r}: {error}") from error
            stack.callback(server.close)
            transports[name] = InProcessTransport(server)
        yield transports


@contextlib.contextmanager
def _messages_to(log: pathlib.Path) -> Iterator[None]:
    """Writes the log messages of `agentgym_envs` to a file only, which the first one creates."""
    log.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("agentgym_envs")
    handler = logging.FileHandler(log, encoding="utf-8", errors="backslashreplace", delay=True)
    was_propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.propagate = was_propagated
