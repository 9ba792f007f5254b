"""Where our Wordle and AgentGym's differ: the hidden word, the first text, reading of guesses."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.wordle.words import VOCABULARY

START = "Let's start Wordle!"
# From the words that all answers so far allow to the hidden word that answers the next guess.
Hide = Callable[[Sequence[str]], str]


class Rules(Protocol):
    """What the two ways to play do differently."""

    start: str

    def hide(self, data_idx: int) -> Hide:
        """How a task chooses its hidden word."""

    def read(self, action: str) -> str:
        """The letters of a guess; they need not be a word."""

    def listed(self, candidates: Sequence[str]) -> list[str]:
        """The words that `GET /filtered_vocab` tells."""


class OurRules:
    """The default: one hidden word a task, and no hints but the answers."""

    start = (
        f"{START} The hidden word is one of these {len(VOCABULARY)}; other guesses are invalid.\n"
        f"{' '.join(VOCABULARY)}"
    )

    def hide(self, data_idx: int) -> Hide:
        """Always the same word.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        if not 0 <= data_idx < len(VOCABULARY):
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"wordle has tasks 0 .. {len(VOCABULARY) - 1}, the index was {data_idx}",
            )
        return lambda candidates: VOCABULARY[data_idx]

    def read(self, action: str) -> str:
        """Case and all white space are ignored."""
        return "".join(action.lower().split())

    def listed(self, candidates: Sequence[str]) -> list[str]:
        """The whole vocabulary, which says nothing about the hidden word."""
        return list(VOCABULARY)


class CompatRules:
    """AgentGym's server: the hidden word is drawn anew for each guess, and hints are given."""

    start = START

    def hide(self, data_idx: int) -> Hide:
        """Draws with a generator whose seed is the index."""
        return random.Random(data_idx).choice

    def read(self, action: str) -> str:
        """Spaces are ignored; case counts."""
        return action.strip().replace(" ", "")

    def listed(self, candidates: Sequence[str]) -> list[str]:
        """Only what can still be the hidden word."""
        return list(candidates)
