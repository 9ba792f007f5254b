"""Environments in the training process, behind the client that otherwise speaks HTTP."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.in_process import InProcessServer
from agentgym_envs.base.kind import load_kind
from agentgym_envs.kinds import KINDS

SHIPPED = tuple(KINDS)  # environments that need no module


class InProcessTransport:
    """Calls a server of this process; nothing can break on the way, and nothing limits the time.

    Args:
      server: answers.
    """

    def __init__(self, server: InProcessServer):
        self._server = server

    def exchange(
        self,
        method: str,
        target: str,
        request: Mapping[str, Any] | None,
        timeout_s: float | None,
        turn: str = "",
    ) -> tuple[int, bytes]:
        """See `transport.Transport.exchange`; `turn` is of no use where nothing comes twice."""
        return self._server.exchange(method, target, request)

    def disconnect(self) -> None:
        """There is no connection."""
        return None  # the server is closed by whoever opened it


@contextlib.contextmanager
def in_process_servers(
    environments: Sequence[str],
    modules: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[dict[str, InProcessTransport]]:
    """Opens environments in this process for the length of the `with` block.

    Args:
      environments: names as for `python -m agentgym_envs NAME`.
      modules: name -> module with `make_kind()`, of environments that are not among ours.
      options: name -> options of its `make_kind()`, of environments that need any.

    Raises:
      ValueError: there is no such environment, or it cannot run on this machine.
    """
    known = {name: entry.module for name, entry in KINDS.items()} | dict(modules or {})
    unknown = sorted(set(environments) - set(known))
    if unknown:
        raise ValueError(
            f"environment {unknown[0]!r} cannot run in this process; these can: {sorted(KINDS)}"
        )
    chosen = dict(options or {})
    with contextlib.ExitStack() as stack:
        transports = {}
        for name in environments:
            try:
                server = InProcessServer(
                    load_kind(known[name], chosen[name] if name in chosen else None)
                )
            except SetupError as error:
                raise ValueError(f"environment {name!r}: {error}") from error
            stack.callback(server.close)
            transports[name] = InProcessTransport(server)
        yield transports
