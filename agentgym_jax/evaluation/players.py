"""Who plays when no sampler of ours does: the scripted expert, any valid action, a chat endpoint.

A player answers with text as a model would, so that reading it, limits and records are the same.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgym_jax.env_client.actions import ActionFormat
from agentgym_jax.env_client.answers import Observation
from agentgym_jax.env_client.guided import GuidedObservation
from agentgym_jax.rollout.collect import EpisodeRequest

EXPERT = "expert"
RANDOM = "random"


class PromptTooLongError(Exception):
    """The conversation does not fit the player's context: the episode ends as CONTEXT_FULL."""


class PlayerError(RuntimeError):
    """The player cannot go on; what was played so far is kept. The message says what to change."""


class PlayerStopped(PlayerError):
    """The user asked to stop while the player waited."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """What a player knows when it is its turn.

    Attributes:
      request: whose episode.
      turn: turns taken before, from 0.
      messages: the conversation, a user message last.
      observation: the environment's last answer.
    """

    request: EpisodeRequest
    turn: int
    messages: Sequence[Mapping[str, str]]
    observation: Observation


@dataclasses.dataclass(frozen=True)
class Answer:
    """A player's turn.

    Attributes:
      text: what it writes.
      is_stopped: it ended by itself; otherwise a limit cut it.
    """

    text: str
    is_stopped: bool = True


class Player(Protocol):
    """Answers one turn at a time, the turns of different episodes from several threads.

    Attributes:
      concurrency: episodes under way at the same time.
      may_wait: whether an answer takes long, so that it needs a thread of its own.
    """

    concurrency: int
    may_wait: bool

    def answer(self, moment: Moment) -> Answer:
        """The next turn.

        Raises:
          PromptTooLongError: the conversation has become too long.
          PlayerError: the player cannot go on at all.
        """

    def close(self) -> None:
        """Ends what is under way."""


class ScriptedPlayer:
    """Says an action that the environment offered: the expert's, or one of the valid ones.

    Of several, one is drawn uniformly from a generator seeded by (seed, item, sample, turn), so that
    neither order nor threads change it.

    Args:
      formats: environment -> how its actions are written.

    Raises:
      ValueError: an environment wants its actions in a form that scripted players do not write.
    """

    concurrency = 8  # the environment does the work, often in one process
    may_wait = False

    def __init__(self, formats: Mapping[str, ActionFormat]):
        for name, written in formats.items():
            if written not in (ActionFormat.REACT, ActionFormat.REACT_OR_BARE, ActionFormat.RAW):
                raise ValueError(
                    f"scripted players write their actions as {ActionFormat.REACT} or "
                    f"{ActionFormat.RAW}, and config.environments.{name}.action_format asks for "
                    f"{written}: set it to ''"
                )
        self._formats = formats

    def answer(self, moment: Moment) -> Answer:
        """See `Player.answer`; text without an action if nothing is offered."""
        seen = moment.observation
        offered = seen.offered if isinstance(seen, GuidedObservation) else ()
        if not offered:
            return Answer("There is nothing to do.")
        action = self._rng(moment).choice(offered) if len(offered) > 1 else offered[0]
        is_raw = self._formats[moment.request.task.environment] is ActionFormat.RAW
        return Answer(action if is_raw else f"Action: {action}")

    def close(self) -> None:
        """Nothing is under way."""
        return None  # answers are immediate

    @staticmethod
    def _rng(moment: Moment) -> random.Random:
        request = moment.request
        return random.Random(
            f"{request.seed}/{request.task.item_id}/{request.sample}/{moment.turn}"
        )
