"""Changes of a turn's logits: penalties, biases and masks, which the host computes token by token."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

import numpy as np

from agentgym_jax.checks.limits import Range
from agentgym_jax.sampling.decode import RowState
from agentgym_jax.sampling.logits import Adjustment


@dataclasses.dataclass(frozen=True)
class LogitOptions:
    """Changes of the logits of one turn. The defaults change nothing.

    Penalties and biases are added to the logits before the temperature, after the repetition
    penalty.

    Attributes:
      frequency_penalty: Amount by which each earlier occurrence of a token in the turn lowers its
        logit.
      presence_penalty: Amount by which any earlier occurrence in the turn lowers it.
      repetition_penalty: Divisor of positive logits, and factor of others, of tokens that occur in
        the prompt or in the turn.
      min_p: Least probability of a sampled token, in units of that of the likeliest token, at the
        temperature.
      logit_bias: Amounts that are added to the logits of tokens, by id.
    """

    frequency_penalty: Annotated[float, Range(-2, 2)] = 0.0
    presence_penalty: Annotated[float, Range(-2, 2)] = 0.0
    repetition_penalty: Annotated[float, Range(0.01, 100)] = 1.0
    min_p: Annotated[float, Range(0, 1)] = 0.0
    logit_bias: Mapping[int, Annotated[float, Range(-100, 100)]] = dataclasses.field(
        default_factory=dict
    )


class Matcher(Protocol):
    """Interface to a grammar of the turn."""

    def allowed(self) -> np.ndarray:
        """Returns the mask of the next token, uint32 words as in `models/token_masks.py`."""

    def advance(self, token: int) -> None:
        """Takes the next token."""


class TurnAdjuster:
    """State of the changes of one turn, which its tokens advance."""

    def __init__(
        self,
        options: LogitOptions,
        prompt: Sequence[int],
        vocab_size: int,
        matcher: Matcher | None = None,
    ):
        """Creates the state before the first token.

        Args:
          options: Penalties and biases.
          prompt: All tokens before the turn.
          vocab_size: Number of token ids of the model.
          matcher: Grammar of the turn; None for none.
        """
        self._options = options
        self._matcher = matcher
        self._bias = np.zeros(vocab_size, np.float32)
        for token, bias in options.logit_bias.items():
            self._bias[token] = bias
        self._counts: collections.Counter[int] = collections.Counter()
        self._is_seen = np.zeros(vocab_size, bool)
        if options.repetition_penalty != 1.0:
            self._is_seen[np.asarray(prompt, np.int64)] = True

    @property
    def follows_tokens(self) -> bool:
        """True if the sampled tokens change the logits of later ones."""
        o = self._options
        if self._matcher is not None:
            return True
        return (o.frequency_penalty, o.presence_penalty, o.repetition_penalty) != (0.0, 0.0, 1.0)

    def advance(self, tokens: Sequence[int]) -> None:
        """Takes the tokens that were sampled since the last call."""
        if not self.follows_tokens:
            return
        o = self._options
        for token in tokens:
            if self._matcher is not None:
                self._matcher.advance(token)
            self._counts[token] += 1
            penalty = o.presence_penalty + o.frequency_penalty * self._counts[token]
            self._bias[token] = np.float32(o.logit_bias.get(token, 0.0) - penalty)
            self._is_seen[token] = True

    def write(self, adjustment: Adjustment, index: int) -> None:
        """Writes the changes of the next token to the row `index` of NumPy arrays."""
        adjustment.bias[index] = self._bias
        adjustment.repetition_penalty[index] = self._options.repetition_penalty
        adjustment.is_seen[index] = self._is_seen
        adjustment.min_p[index] = self._options.min_p
        if self._matcher is not None:
            adjustment.mask[index] = self._matcher.allowed()


def make_adjustment(
    adjusters: Mapping[int, TurnAdjuster | None], rows: RowState, vocab_size: int
) -> Adjustment | None:
    """Returns the changes of a call, given those of its rows by their index; None without any.

    Rows whose tokens change their logits get a budget of one token.
    """
    found = {index: adjuster for index, adjuster in adjusters.items() if adjuster is not None}
    if not found:
        return None
    adjustment = Adjustment.create(len(rows.token), vocab_size)
    for index, adjuster in found.items():
        adjuster.write(adjustment, index)
        if adjuster.follows_tokens:
            rows.budget[index] = 1
    return adjustment


class CallOrder:
    """Alternates calls for rows with and without changed logits, which do not share a call.

    Both kinds of rows get equally many decode steps while there are both.
    """

    def __init__(self) -> None:
        self._lead = 0  # decode steps by which the rows without changes are ahead

    def choose(self, plain: Sequence[int], adjusted: Sequence[int]) -> Sequence[int]:
        """Returns the rows of the next call."""
        if not plain or not adjusted:
            self._lead = 0
            return plain or adjusted
        return adjusted if self._lead > 0 else plain

    def note(self, steps: int, *, is_adjusted: bool) -> None:
        """Counts the steps of a call."""
        self._lead += -steps if is_adjusted else steps
