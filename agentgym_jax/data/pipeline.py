"""Packs encoded conversations into batches of one static shape; the seed determines their order."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from absl import logging

from agentgym_jax.episodes.batch import TokenBatch, assign_rows, pack
from agentgym_jax.text.chat import EncodedConversation

_LOOKAHEAD = 32  # number of sequences that do not fit before a batch counts as full


@dataclasses.dataclass(frozen=True)
class Dropped:
    """Counts of conversations that are left out of the batches or truncated."""

    too_long: int  # left out because they are longer than a row
    truncated: int  # truncated to the length of a row
    without_loss: int  # left out because they have no token to imitate, possibly after truncation

    def __str__(self) -> str:
        counts = {
            "cut to a row": self.truncated,
            "left out, longer than a row": self.too_long,
            "left out, without an action to imitate": self.without_loss,
        }
        return "; ".join(f"{count} {words}" for words, count in counts.items() if count)


@dataclasses.dataclass(frozen=True)
class Batches:
    """Sequence of batches `[rows, row_length]`; `batch_at` can be called in any order."""

    sequences: Sequence[EncodedConversation]  # sequences used in every epoch
    plan: Sequence[Sequence[int]]  # indices of the sequences in every batch
    row_length: int
    rows: int
    weighting: str  # weighting of tokens, as in `batches`
    importance: Sequence[float]  # importance of every sequence, as in `batches`
    dropped: Dropped

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[TokenBatch]:
        return (self.batch_at(step) for step in range(len(self)))

    def batch_at(self, step: int) -> TokenBatch:
        """Returns the batch of a step as NumPy arrays; the weights of its tokens sum to 1."""
        if not 0 <= step < len(self.plan):
            raise IndexError(f"step {step} of a pipeline of {len(self.plan)} batches")
        members = [self.sequences[i] for i in self.plan[step]]
        importance = [self.importance[i] for i in self.plan[step]]
        all_weights = _weights(members, importance, self.weighting)
        sequences = [
            {"tokens": member.tokens, "action_mask": member.action_mask, "weights": weights}
            for member, weights in zip(members, all_weights, strict=True)
        ]
        return pack(sequences, row_length=self.row_length, rows_multiple=self.rows)

    def epochs_until(self, step: int) -> float:
        """Returns the number of passes over the data completed after the batch of a step."""
        return sum(map(len, self.plan[: step + 1])) / len(self.sequences)


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
    """Plans batches over shuffled epochs; an epoch has every sequence once.

    A batch may contain the end of one epoch and the start of the next, so only the last batch can
    have empty rows.

    Either `epochs` (passes over the data) or `steps` (batches) is given. With `token_mean` all tokens
    have equal weights, with `sequence_mean` all conversations; `importance` multiplies those of a
    conversation. `too_long` is the treatment of conversations longer than a row.
    """
    if (epochs is None) == (steps is None):
        raise ValueError(f"give either epochs or steps; got epochs={epochs}, steps={steps}")
    importance = [1.0] * len(encoded) if importance is None else importance
    if len(importance) != len(encoded) or not all(weight > 0 for weight in importance):
        raise ValueError(f"importance needs {len(encoded)} numbers above 0, got {importance}")
    kept, dropped = _fit(encoded, row_length, too_long)
    sequences = list(kept.values())
    if not sequences:
        is_long = dropped.too_long or dropped.truncated
        remedy = (
            f"raise row_length={row_length}" if is_long else "answers to imitate have 'loss' true"
        )
        raise ValueError(
            f"none of {len(encoded)} conversations can be trained on: {dropped}; {remedy}"
        )
    if any(dataclasses.astuple(dropped)):
        is_wanted = too_long == "truncate" and not dropped.without_loss
        level = logging.INFO if is_wanted else logging.WARNING
        logging.log(level, "%d conversations: %s", len(encoded), dropped)
    lengths = [len(sequence.tokens) for sequence in sequences]
    plan = _plan(lengths, row_length=row_length, rows=rows, seed=seed, epochs=epochs, steps=steps)
    kept_importance = [importance[i] for i in kept]
    return Batches(sequences, plan, row_length, rows, weighting, kept_importance, dropped)


def _fit(
    encoded: Sequence[EncodedConversation], row_length: int, too_long: str
) -> tuple[dict[int, EncodedConversation], Dropped]:
    """Returns the sequences for training, by index, and the counts of the others."""
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
    """Returns the first `length` tokens of a conversation."""
    return EncodedConversation(
        sequence.tokens[:length], sequence.action_mask[:length], sequence.sources[:length]
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
    plan: list[list[int]] = []
    queue: list[int] = []
    epoch = 0
    while steps is None or len(plan) < steps:
        # with tokens for two batches, several sequences are candidates for the last gaps
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
    """Returns the queue positions of the sequences that fit in the next batch, earliest first."""
    members: list[int] = []
    chosen: list[int] = []  # lengths of the chosen sequences
    misses = 0
    too_big = row_length + 1  # smallest length that did not fit
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
    total = sum(lengths)
    if total > rows * row_length:
        return False
    # First fit opens another row only if every open row has more than row_length - longest tokens.
    if total <= rows * (row_length - max(lengths)):
        return True
    return len(assign_rows(lengths, row_length)) <= rows


def _weights(
    members: Sequence[EncodedConversation], importance: Sequence[float], weighting: str
) -> list[np.ndarray]:
    """Returns the weight of every token of every sequence; 0 for tokens that are not imitated."""
    counts = [int(member.action_mask.sum()) for member in members]
    pairs = list(zip(counts, importance, strict=True))
    if weighting == "token_mean":
        total = sum(count * weight for count, weight in pairs)
        per_token = [weight / total for weight in importance]
    else:
        per_token = [weight / (sum(importance) * count) for count, weight in pairs]
    return [
        member.action_mask.astype(np.float32) * np.float32(weight)
        for member, weight in zip(members, per_token, strict=True)
    ]
