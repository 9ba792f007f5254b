"""Clients of scripted players: every observation comes with what the server would do now."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentgym_jax.env_client.answers import Observation, bad_body
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.errors import EnvError


@dataclasses.dataclass(frozen=True)
class GuidedObservation(Observation):
    """An observation together with actions that the server offers.

    Attributes:
      offered: the expert's action alone, or all valid actions; empty after the end.
    """

    offered: tuple[str, ...] = ()


class ExpertClient(EnvClient):
    """Asks our servers' `/expert_action` after every answer."""

    def reset(self, session: int, data_idx: int, turn: str = "") -> Observation:
        """See `EnvClient.reset`."""
        return self._guided(session, super().reset(session, data_idx, turn))

    def step(self, session: int, action: str, turn: str = "") -> Observation:
        """See `EnvClient.step`."""
        return self._guided(session, super().step(session, action, turn))

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
                    f"{error.message}. Scripted players need a server of agentgym_envs",
                    retryable_from_reset=False,
                ) from error
            raise


class ValidActionsClient(ExpertClient):
    """Asks our servers' `/valid_actions` after every answer."""

    def _offered(self, session: int) -> tuple[str, ...]:
        answer = self._ask(session, "/valid_actions")
        actions = answer["actions"] if "actions" in answer else None
        if not isinstance(actions, list) or not all(isinstance(a, str) for a in actions):
            raise bad_body(f"{self.base_url}/valid_actions", repr(answer)[:200], "a list")
        return tuple(actions)
