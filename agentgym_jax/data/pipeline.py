"""From encoded conversations to packed batches of one static shape, in an order fixed by a seed.

Which sequences are in which batch is decided when the pipeline is made. A batch is then a function
of its step, so resuming is asking for step n.
"""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from absl import logging

from agentgym_jax.batch import TokenBatch, assign_rows, pack
from agentgym_jax.text.chat import EncodedConversation

# Sequences that a batch looks through for one that still fits its gaps.
_LOOKAHEAD = 32


@dataclasses.dataclass(frozen=True)
class Dropped:
    """How many conversations are not, or not wholly, in the batches.

    Attributes:
      too_long: left out because they have more tokens than a row.
      truncated: cut to a row.
      without_loss: left out because they have no token to imitate (after cutting).
    """

    too_long: int
    truncated: int
    without_loss: int

    def __str__(self) -> str:
        return (
            f"{self.truncated} were cut to a row, {self.too_long} left out as longer than a row, "
            f"{self.without_loss} left out for want of a token to imitate"
        )


class Batches:
    """A sequence of batches `[rows, row_length]`; `batch_at(step)` may be called in any order.

    Attributes:
      dropped: counts of conversations that were left out or cut.
      num_sequences: conversations that are used in every epoch.
    """

    def __init__(
        self,
        sequences: Sequence[EncodedConversation],
        plan: Sequence[Sequence[int]],
        *,
        row_length: int,
        rows: int,
        weighting: str,
        importance: Sequence[float],
        dropped: Dropped,
    ) -> None:
        """Holds what `batches` worked out."""
        self._sequences = sequences
        self._plan = plan
        self._row_length = row_length
        self._rows = rows
        self._weighting = weighting
        self._importance = importance
        self.dropped = dropped
        self.num_sequences = len(sequences)
        self._taken = np.cumsum([len(members) for members in plan])

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[TokenBatch]:
        return (self.batch_at(step) for step in range(len(self)))

    def batch_at(self, step: int) -> TokenBatch:
        """The batch of a step, as NumPy arrays; the weights of its tokens sum to 1.

        Raises:
          IndexError: the step is not in 0 .. len - 1.
        """
        if not 0 <= step < len(self._plan):
            raise IndexError(f"step {step} of a pipeline of {len(self._plan)} batches")
        members = [self._sequences[i] for i in self._plan[step]]
        importance = [self._importance[i] for i in self._plan[step]]
        all_weights = _weights(members, importance, self._weighting)
        sequences = [
            {"tokens": member.tokens, "action_mask": member.action_mask, "weights": weights}
            for member, weights in zip(members, all_weights, strict=True)
        ]
        return pack(sequences, row_length=self._row_length, rows_multiple=self._rows)

    def epochs_until(self, step: int) -> float:
        """Passes over the data that the batches up to that of a step make together."""
        return float(self._taken[step]) / self.num_sequences


def batches(
    encoded: Sequence[EncodedConversation],
    *,
    row_length: int,
    rows: int,
    seed: int,
    epochs: int | None = None,
    steps: int | None = None,
    weighting: Literal["token_mean", "sequence_mean"] = "token_mean",
    too_long: Literal["error", "skip", "truncate"] = "error",
    importance: Sequence[float] | None = None,
) -> Batches:
    """Plans batches over shuffled epochs. Every epoch has every sequence once.

    A batch is filled across the end of an epoch, so only the last one may have empty rows. All
    are of one static shape, so one program is compiled.

    Args:
      encoded: the conversations.
      row_length: tokens in a row.
      rows: rows in a batch.
      seed: fixes the order; epoch e is shuffled by (seed, e).
      epochs: passes over the data; give this or `steps`.
      steps: number of batches; give this or `epochs`.
      weighting: `token_mean` weighs all tokens to imitate alike, `sequence_mean` all conversations.
      too_long: what a conversation longer than a row does: `error` raises, `skip` leaves it
        out, `truncate` keeps its first `row_length` tokens. The counts are logged.
      importance: of every conversation beside the others of its batch, above 0; None is 1 each.

    Raises:
      ValueError: a choice is unknown, a conversation too long, or nothing is left to train on.
    """
    if (epochs is None) == (steps is None):
        raise ValueError(f"give either epochs or steps; got epochs={epochs}, steps={steps}")
    if weighting not in ("token_mean", "sequence_mean"):
        raise ValueError(f"weighting is {weighting!r}; expected 'token_mean' or 'sequence_mean'")
    importance = [1.0] * len(encoded) if importance is None else importance
    if len(importance) != len(encoded) or not all(weight > 0 for weight in importance):
        raise ValueError(f"importance needs {len(encoded)} numbers above 0, got {importance}")
    kept, dropped = _fit(encoded, row_length, too_long)
    sequences = list(kept.values())
    if not sequences:
        raise ValueError(f"none of {len(encoded)} conversations can be trained on: {dropped}")
    if any(dataclasses.astuple(dropped)):
        logging.warning("of %d conversations %s", len(encoded), dropped)
    lengths = [len(sequence.tokens) for sequence in sequences]
    plan = _plan(lengths, row_length=row_length, rows=rows, seed=seed, epochs=epochs, steps=steps)
    return Batches(
        sequences,
        plan,
        row_length=row_length,
        rows=rows,
        weighting=weighting,
        importance=[importance[i] for i in kept],
        dropped=dropped,
    )


def _fit(
    encoded: Sequence[EncodedConversation], row_length: int, too_long: str
) -> tuple[dict[int, EncodedConversation], Dropped]:
    """Index -> sequence of those that fit a row and have something to imitate."""
    if too_long not in ("error", "skip", "truncate"):
        raise ValueError(f"too_long is {too_long!r}; expected 'error', 'skip' or 'truncate'")
    kept: dict[int, EncodedConversation] = {}
    count: collections.Counter[str] = collections.Counter()
    for i, sequence in enumerate(encoded):
        if len(sequence.tokens) > row_length:
            if too_long == "error":
                raise ValueError(
                    f"conversation {i} has {len(sequence.tokens)} tokens, a row holds {row_length}. "
                    "Raise row_length, or set too_long to 'skip' or 'truncate'."
                )
            if too_long == "skip":
                count["too_long"] += 1
                continue
            count["truncated"] += 1
            sequence = truncate(sequence, row_length)
        if sequence.action_mask.any():
            kept[i] = sequence
        else:
            count["without_loss"] += 1
    return kept, Dropped(count["too_long"], count["truncated"], count["without_loss"])


def truncate(sequence: EncodedConversation, length: int) -> EncodedConversation:
    """The first tokens of a conversation."""
    return EncodedConversation(
        tokens=sequence.tokens[:length],
        action_mask=sequence.action_mask[:length],
        sources=sequence.sources[:length],
    )


def _plan(
    lengths: Sequence[int],
    *,
    row_length: int,
    rows: int,
    seed: int,
    epochs: int | None,
    steps: int | None,
) -> list[list[int]]:
    """Indices of the sequences of every batch."""
    plan: list[list[int]] = []
    queue: list[int] = []
    epoch = 0
    while steps is None or len(plan) < steps:
        # Twice a batch, so that there is a choice of sequences for its last gaps.
        while sum(lengths[i] for i in queue) < 2 * rows * row_length and (
            epochs is None or epoch < epochs
        ):
            queue += np.random.default_rng([seed, epoch]).permutation(len(lengths)).tolist()
            epoch += 1
        if not queue:
            break
        members = _fill(queue, lengths, row_length, rows)
        plan.append([queue[at] for at in members])
        taken = set(members)
        queue = [i for at, i in enumerate(queue) if at not in taken]
    return plan


def _fill(queue: Sequence[int], lengths: Sequence[int], row_length: int, rows: int) -> list[int]:
    """Places in the queue of the sequences of the next batch: the first ones that fit together.

    A sequence that does not fit stays first in the queue of the next batch, so none waits long.
    """
    members: list[int] = []
    chosen: list[int] = []  # their lengths
    misses = 0
    too_big = row_length + 1  # sequences of this length did not fit
    for at, i in enumerate(queue):
        if lengths[i] < too_big and _fits([*chosen, lengths[i]], row_length, rows):
            members.append(at)
            chosen.append(lengths[i])
            continue
        too_big = min(too_big, lengths[i])
        misses += 1
        if misses == _LOOKAHEAD:
            break
    return members


def _fits(lengths: Sequence[int], row_length: int, rows: int) -> bool:
    """Whether `pack` needs no more than `rows` rows."""
    total = sum(lengths)
    if total > rows * row_length:
        return False
    # First fit opens another row only if all rows are filled beyond row_length - longest.
    if total <= rows * (row_length - max(lengths)):
        return True
    return len(assign_rows(lengths, row_length)) <= rows


def _weights(
    members: Sequence[EncodedConversation], importance: Sequence[float], weighting: str
) -> list[np.ndarray]:
    """Weight of every token of every sequence, 0 where there is nothing to imitate."""
    counts = [int(member.action_mask.sum()) for member in members]
    total = sum(count * weight for count, weight in zip(counts, importance, strict=True))
    per_token = {
        "token_mean": [weight / total for weight in importance],
        "sequence_mean": [
            weight / (sum(importance) * count)
            for count, weight in zip(counts, importance, strict=True)
        ],
    }
    return [
        member.action_mask.astype(np.float32) * np.float32(weight)
        for member, weight in zip(members, per_token[weighting], strict=True)
    ]
