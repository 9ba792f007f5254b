"""Sequences of tokens that the engine extends, and their sampled parts."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from agentgym_jax.episodes.trajectory import TokenSource
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


class TokenSequence:
    """Tokens of one conversation, append-only, exactly as prefilled and sampled.

    Only the engine changes a sequence, and only during a request.

    Attributes:
      key: Random key of the sampled tokens, uint32 [2].
      number: Place of the sequence among those of its owner.
      tokens, sources, logprobs, versions: One value per token, as in `Trajectory`.
      row: Cache row that holds the tokens; None if no row does.
    """

    def __init__(self, key: np.ndarray, number: int = 0):
        self.key = key
        self.number = number
        self.tokens: list[int] = []
        self.sources: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.answers: list[Answer] = []
        self.row: int | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(
        self,
        tokens: Sequence[int],
        source: TokenSource,
        logprobs: Sequence[float] | None = None,
        version: int = -1,
    ) -> None:
        """Appends tokens; `logprobs` and `version` are those of sampled tokens."""
        self.tokens.extend(tokens)
        self.sources.extend([int(source)] * len(tokens))
        self.logprobs.extend([0.0] * len(tokens) if logprobs is None else logprobs)
        self.versions.extend([version] * len(tokens))
