"""Clients for scripted agents.

Every observation includes the server's expert action or all valid actions.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentgym_jax.client.answers import Observation, bad_body
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvError


@dataclasses.dataclass(frozen=True)
class GuidedObservation(Observation):
    """Observation together with the actions that the server offers.

    Attributes:
      offered: The expert's action alone, or all valid actions; empty after the end of the episode.
    """

    offered: tuple[str, ...] = ()


class ExpertClient(EnvClient):
    """Client that requests `/expert_action` of this project's servers after every answer."""

    def reset(self, session: int, data_idx: int, request_id: str = "") -> Observation:
        """Resets the session as described in `EnvClient.reset`, and requests the offered actions."""
        return self._guided(session, super().reset(session, data_idx, request_id))

    def step(self, session: int, action: str, request_id: str = "") -> Observation:
        """Sends an action as described in `EnvClient.step`, and requests the offered actions."""
        return self._guided(session, super().step(session, action, request_id))

    def _guided(self, session: int, seen: Observation) -> GuidedObservation:
        facts = {f.name: getattr(seen, f.name) for f in dataclasses.fields(Observation)}
        offered = () if seen.done else self._offered(session)
        return GuidedObservation(**facts, offered=offered)

    def _offered(self, session: int) -> tuple[str, ...]:
        answer = self._ask(session, "/expert_action")
        if "action" not in answer or not isinstance(answer["action"], str):
            raise bad_body(f"{self.base_url}/expert_action", repr(answer)[:200], "an action")
        return (answer["action"],)

    def _ask(self, session: int, route: str) -> Mapping[str, Any]:
        try:
            return self.ask(session, route)
        except EnvError as error:
            if error.kind is None and not error.retryable_from_reset:
                raise EnvError(
                    error.cause,
                    f"{error.message}. Scripted agents need a server of agentgym_envs",
                    retryable_from_reset=False,
                ) from error
            raise


class ValidActionsClient(ExpertClient):
    """Client that requests `/valid_actions` of this project's servers after every answer."""

    def _offered(self, session: int) -> tuple[str, ...]:
        answer = self._ask(session, "/valid_actions")
        actions = answer["actions"] if "actions" in answer else None
        if not isinstance(actions, list) or not all(isinstance(a, str) for a in actions):
            raise bad_body(f"{self.base_url}/valid_actions", repr(answer)[:200], "a list")
        return tuple(actions)
