"""Clients for scripted agents, which also request the expert action or all valid actions."""

import dataclasses

from agentgym_jax.client.answers import Answer, Observation
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvError


@dataclasses.dataclass(frozen=True)
class GuidedObservation(Observation):
    """Observation with the expert action or all valid actions; none after the episode has ended."""

    offered: tuple[str, ...] = ()


class ExpertClient(EnvClient):
    """Client that requests `/expert_action` of this project's servers after every answer."""

    def reset(self, session: int, data_idx: int, request_id: str = "") -> Observation:
        """Resets the session and requests the offered actions."""
        return self._guided(session, super().reset(session, data_idx, request_id))

    def step(self, session: int, action: str, request_id: str = "") -> Observation:
        """Sends an action and requests the offered actions."""
        return self._guided(session, super().step(session, action, request_id))

    def _guided(self, session: int, seen: Observation) -> GuidedObservation:
        return GuidedObservation(**vars(seen), offered=() if seen.done else self._offered(session))

    def _offered(self, session: int) -> tuple[str, ...]:
        answer = self._ask(session, "/expert_action")
        return (answer.field("action", str),)

    def _ask(self, session: int, route: str) -> Answer:
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
        actions = dataclasses.replace(answer, body=answer.field("actions", list))
        return tuple(actions.words())
