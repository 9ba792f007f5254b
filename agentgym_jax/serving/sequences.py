"""Sequences of tokens that the engine extends, and their sampled parts."""

import dataclasses

import numpy as np

from agentgym_jax.episodes.token_lists import TokenLists
from agentgym_jax.sampling.adjusting import LogitOptions
from agentgym_jax.text.grammars import TokenMatcher


@dataclasses.dataclass(frozen=True)
class Answer:
    """Sampled part of a sequence: tokens `start` to `stop`."""

    start: int
    stop: int
    text: str
    is_stopped: bool  # True if a stop token ended it
    is_cut: bool  # True if a token limit ended it
    grammar: str = ""  # grammar of its tokens; empty for none


@dataclasses.dataclass(frozen=True)
class Changes:
    """Changes of the logits of an answer: penalties and biases, and a grammar or None."""

    options: LogitOptions
    matcher: TokenMatcher | None = None


class TokenSequence(TokenLists):
    """Tokens of one conversation. Only the engine changes a sequence, and only during a request.

    Attributes:
      key: Random key of the sampled tokens, uint32 [2].
      number: Place of the sequence among those of its owner.
      row: Cache row that holds the tokens; None if no row does.
    """

    def __init__(self, key: np.ndarray, number: int = 0):
        super().__init__()
        self.key = key
        self.number = number
        self.answers: list[Answer] = []
        self.row: int | None = None
