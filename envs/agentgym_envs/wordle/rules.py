"""Differences between our Wordle and AgentGym's: hidden word, first observation, parsing."""

import random
from collections.abc import Callable, Sequence

from agentgym_envs.base.environment import check_task
from agentgym_envs.wordle.words import VOCABULARY

START = "Let's start Wordle!"
# Chooses the hidden word for the next guess among the words that fit all feedback so far.
Hide = Callable[[Sequence[str]], str]


class Rules:
    """Our rules: each task has one hidden word, and the feedback is the only hint."""

    start = (
        f"{START} The hidden word is one of these {len(VOCABULARY)}; other guesses are invalid.\n"
        f"{' '.join(VOCABULARY)}"
    )

    def hide(self, data_idx: int) -> Hide:
        """Returns a function that always chooses the hidden word of this index.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        check_task("wordle", data_idx, len(VOCABULARY))
        return lambda candidates: VOCABULARY[data_idx]

    def read(self, action: str) -> str:
        """Returns the letters of a guess in lower case, without white space."""
        return "".join(action.lower().split())

    def listed(self, candidates: Sequence[str]) -> list[str]:
        """Returns the whole vocabulary, so that `GET /filtered_vocab` reveals nothing."""
        return list(VOCABULARY)


class CompatRules(Rules):
    """AgentGym's rules: each guess draws a new hidden word, and `/filtered_vocab` gives hints."""

    start = START

    def hide(self, data_idx: int) -> Hide:
        """Returns a function that draws words with a generator whose seed is the index."""
        return random.Random(data_idx).choice

    def read(self, action: str) -> str:
        """Returns the guess without spaces; upper and lower case are kept."""
        return action.strip().replace(" ", "")

    def listed(self, candidates: Sequence[str]) -> list[str]:
        """Returns the words that can still be the hidden one."""
        return list(candidates)
