"""Stub of the server of an environment whose tasks belong to the agent program."""

import json
from collections.abc import Mapping
from typing import Any

from agentgym_jax.client.errors import EnvCause, EnvError

_NOT_FOUND = 404


class NoServerTransport:
    """Answers `/spec` with empty instructions; every request about a session fails."""

    def __init__(self, environment: str):
        self._environment = environment

    def exchange(
        self,
        method: str,
        target: str,
        request: Mapping[str, Any] | None,
        timeout_s: float | None,
        request_id: str = "",
    ) -> tuple[int, bytes]:
        """Implements `Transport.exchange`.

        Raises:
          EnvError: The request needs a server (PROGRAM).
        """
        if method == "GET":
            return (200, self._spec()) if target.endswith("/spec") else (_NOT_FOUND, b"{}")
        raise EnvError(
            EnvCause.PROGRAM,
            f"config.environments.{self._environment} has protocol='none', so there is no server "
            f"for {target}. The program must play its own task and return the reward, without "
            "`reset` and `act`; or remove protocol='none'",
            retryable_from_reset=False,
        )

    def disconnect(self) -> None:
        """Does nothing, because there is no connection."""

    def _spec(self) -> bytes:
        spec = {
            "name": self._environment,
            "version": "none",
            "instructions": "",
            "action_format": "raw",
            "num_tasks": 0,
            "manifest_sha256": "",
            "max_turns": 0,
        }
        return json.dumps(spec).encode()
