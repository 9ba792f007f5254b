"""Packing of pairs of conversations into micro-batches, each pair into one micro-batch."""

import dataclasses
from collections.abc import Sequence

import chex
import flax.struct
import jax
import numpy as np

from agentgym_jax.batch import TokenBatch, assign_rows, pack, pad_micro_batches


@dataclasses.dataclass(frozen=True)
class Member:
    """One conversation of a pair.

    Attributes:
      tokens: int32 [n], token ids.
      action_mask: bool [n], True for the tokens whose log-probabilities are compared; at least one.
      reference_logprobs: float32 [n], log-probabilities under the reference policy; 0 off the mask.
    """

    tokens: np.ndarray
    action_mask: np.ndarray
    reference_logprobs: np.ndarray


Pair = tuple[Member, Member]  # chosen, rejected


@flax.struct.dataclass
class PreferenceBatch:
    """M micro-batches of at most P whole pairs.

    In a micro-batch, sequence 2p of `tokens.sequence_ids` is the chosen conversation of pair p, and
    sequence 2p + 1 the rejected one. `tokens.weights` has the weight of each token in the
    log-probability of its conversation. The pair weights of all micro-batches sum to 1.
    """

    tokens: TokenBatch  # [M, B, T]
    pair_weights: jax.Array  # float32 [M, P], 0 for absent pairs

    def check(self) -> None:
        """Asserts shapes and types; the axis M may be absent."""
        self.tokens.check()
        chex.assert_rank(self.pair_weights, self.tokens.tokens.ndim - 1)
        chex.assert_type(self.pair_weights, float)


def max_micro_batches(pairs: int, micro_rows: int) -> int:
    """Returns the number of micro-batches if every conversation fills a row."""
    return -(-pairs // (micro_rows // 2))


def pack_pairs(
    pairs: Sequence[Pair], *, row_length: int, micro_rows: int, length_normalised: bool
) -> PreferenceBatch:
    """Packs the pairs of one optimiser step; unneeded micro-batches are empty and last.

    Every conversation must fit a row of `row_length` tokens. With `length_normalised`, a
    conversation's log-probability is the mean over its tokens instead of the sum.
    """
    if micro_rows < 2:
        raise ValueError(f"micro_rows={micro_rows}: a micro-batch needs 2 rows to hold any pair")
    lengths = [[len(member.tokens) for member in pair] for pair in pairs]
    bins = _first_fit(lengths, row_length, micro_rows)
    capacity = max_micro_batches(len(pairs), micro_rows)
    pair_weights = np.zeros((capacity, len(pairs)), np.float32)
    packed = []
    for m, members in enumerate(bins):
        sequences = [_sequence(s, length_normalised) for i in members for s in pairs[i]]
        packed.append(pack(sequences, row_length=row_length, rows_multiple=micro_rows))
        pair_weights[m, : len(members)] = 1.0 / len(pairs)
    stacked = jax.tree.map(lambda *x: np.stack(x), *packed)
    return PreferenceBatch(pad_micro_batches(stacked, capacity), pair_weights)


def _first_fit(
    lengths: Sequence[Sequence[int]], row_length: int, micro_rows: int
) -> list[list[int]]:
    """Assigns pairs to micro-batches; returns the indices of the pairs in each."""
    bins: list[list[int]] = []
    held: list[list[int]] = []  # lengths of the conversations in each micro-batch
    for i, pair in enumerate(lengths):
        for members, inside in zip(bins, held, strict=True):
            if len(assign_rows([*inside, *pair], row_length)) <= micro_rows:
                members.append(i)
                inside += pair
                break
        else:
            bins.append([i])
            held.append(list(pair))
    return bins


def _sequence(member: Member, length_normalised: bool) -> dict[str, np.ndarray]:
    scale = 1.0 / member.action_mask.sum() if length_normalised else 1.0
    return {
        "tokens": member.tokens,
        "action_mask": member.action_mask,
        "weights": member.action_mask.astype(np.float32) * np.float32(scale),
        "reference_logprobs": member.reference_logprobs,
    }
