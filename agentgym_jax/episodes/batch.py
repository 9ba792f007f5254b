"""TokenBatch, which is the input of the learner, and the packing of sequences into its rows.

Index `t` of every array refers to token `t`; only `models/token_logprobs.py` shifts tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import chex
import flax.struct
import jax
import numpy as np


@flax.struct.dataclass
class TokenMasks:
    """Masks of the tokens that could be sampled (models/token_masks.py); a row has a table of them."""

    ids: jax.Array  # int32, as the tokens: place of the mask of token t in the table of its row
    # uint32 [B, K, W] or [M, B, K, W]; the first mask of a row allows all tokens
    tables: jax.Array


@flax.struct.dataclass
class TokenBatch:
    """Packed rows: arrays [B, T] or, stacked into micro-batches, [M, B, T]."""

    tokens: jax.Array  # int32, token ids
    positions: jax.Array  # int32, restarts at 0 in every segment
    segment_ids: jax.Array  # int32, segment of each token in its row: 1, 2, ...; 0 is padding
    action_mask: jax.Array  # bool, True for tokens that are trained
    weights: jax.Array  # float32, weight of each token in the loss; 0 outside the mask
    advantages: jax.Array  # float32, 0 outside the mask
    old_logprobs: jax.Array  # float32, under the policy in the ratio's denominator
    reference_logprobs: jax.Array  # float32, under the reference; 0 without a reference
    sequence_ids: jax.Array  # int32, index of the packed sequence; -1 on padding
    returns: jax.Array  # float32, targets of a critic; 0 without a critic
    old_values: jax.Array  # float32, values at the start of the step; 0 without a critic
    sampler_logprobs: jax.Array  # float32, as sampled
    marked: jax.Array  # bool, True for tokens that the loss treats differently (learner/marks.py)
    # None if no sequence has masks, so that usual batches run the same programs as without this field
    masks: TokenMasks | None = None

    def check(self) -> None:
        """Asserts shapes and types of the arrays."""
        ids = [] if self.masks is None else [self.masks.ids]
        chex.assert_equal_shape([*jax.tree.leaves(dataclasses.replace(self, masks=None)), *ids])
        ints = [self.tokens, self.positions, self.segment_ids, self.sequence_ids]
        chex.assert_type([*ints, self.action_mask, self.marked], [*[int] * 4, bool, bool])
        chex.assert_type([getattr(self, name) for name in _FLOATS], float)


_FLOATS = (
    "weights",
    "advantages",
    "old_logprobs",
    "reference_logprobs",
    "returns",
    "old_values",
    "sampler_logprobs",
)


def assign_rows(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Returns the indices of the sequences in each row, by first-fit decreasing, longest first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    if order and lengths[order[0]] > row_length:
        raise ValueError(
            f"sequence {order[0]} has {lengths[order[0]]} tokens, a row holds {row_length}. "
            "Raise config.learner.row_length or lower the token limit of an episode."
        )
    rows: list[list[int]] = []
    room: list[int] = []
    for i in order:
        r = next((r for r, free in enumerate(room) if free >= lengths[i]), len(rows))
        if r == len(rows):
            rows.append([])
            room.append(row_length)
        rows[r].append(i)
        room[r] -= lengths[i]
    return rows


def tightest_row_length(
    lengths: Sequence[int], row_length: int, rows_multiple: int, num_row_lengths: int
) -> int:
    """Returns the row length that needs the fewest positions; the longest one if several do.

    Tries `num_row_lengths` lengths: `row_length`, half of it, a quarter and so on. One program is
    compiled for each length.
    """
    longest = max(lengths, default=0)
    choices = [row_length >> k for k in range(num_row_lengths) if row_length % (1 << k) == 0]
    fitting = [choice for choice in choices if choice >= longest] or [row_length]

    def positions(choice: int) -> int:
        return choice * _round_up(len(assign_rows(lengths, choice)), rows_multiple)

    return min(fitting, key=positions)


def _round_up(rows: int, multiple: int) -> int:
    return max(1, -(-rows // multiple)) * multiple


def pack(
    sequences: Sequence[Mapping[str, Any]],
    *,
    row_length: int,
    rows_multiple: int,
    own_rows: np.ndarray | None = None,
) -> TokenBatch:
    """Packs token sequences into rows of NumPy arrays; B is a multiple of `rows_multiple`.

    Each sequence has `tokens` and optional arrays of TokenBatch (default 0), which may be numbers.
    Instead of some arrays it may have `load`, a function that returns them; it then has an array
    `action_mask`. The function is called for the rows of this process only: `own_rows`, bool
    [rows_multiple], has them in each group of `rows_multiple` rows; None stands for all. A sequence
    with masks has `mask_ids`, int32 [n], and `mask_table`, uint32 [k, W]; id 0 allows all tokens,
    and id i is entry i - 1 of the table.
    """
    rows = assign_rows([_length(s) for s in sequences], row_length)
    sequences = list(sequences)
    for r, members in enumerate(rows):
        for i in members:
            own = dict(sequences[i])
            load = own.pop("load", None)
            if load is not None and (own_rows is None or own_rows[r % rows_multiple]):
                own |= load()
            sequences[i] = own
    shape = (_round_up(len(rows), rows_multiple), row_length)
    # On the host, NumPy arrays take the place of JAX's.
    arrays: dict[str, Any] = {
        name: np.zeros(shape, np.int32) for name in ("tokens", "positions", "segment_ids")
    }
    arrays |= {name: np.zeros(shape, np.float32) for name in _FLOATS}
    arrays |= {name: np.zeros(shape, bool) for name in ("action_mask", "marked")}
    arrays["sequence_ids"] = np.full(shape, -1, np.int32)
    for r, members in enumerate(rows):
        start = 0
        for segment, i in enumerate(members, 1):
            n = _length(sequences[i])
            places = {"positions": np.arange(n), "segment_ids": segment, "sequence_ids": i}
            for name, values in {**sequences[i], **places}.items():
                if name not in _OF_MASKS:
                    arrays[name][r, start : start + n] = values
            start += n
    return TokenBatch(**arrays, masks=_pack_masks(sequences, rows, shape))


def _length(sequence: Mapping[str, Any]) -> int:
    return len(sequence["tokens"] if "tokens" in sequence else sequence["action_mask"])


_OF_MASKS = ("mask_ids", "mask_table")
_LEAST_MASKS = 8


def _pack_masks(
    sequences: Sequence[Mapping[str, np.ndarray]],
    rows: Sequence[Sequence[int]],
    shape: tuple[int, int],
) -> TokenMasks | None:
    """Packs masks; K is a power of two, so that few programs are compiled."""
    words = [s["mask_table"].shape[1] for s in sequences if "mask_table" in s]
    if not words:
        return None
    ids = np.zeros(shape, np.int32)
    row_tables = []
    for r, members in enumerate(rows):
        table = [np.full((1, words[0]), 2**32 - 1, np.uint32)]
        start, size = 0, 1
        for i in members:
            n = _length(sequences[i])
            if "mask_table" in sequences[i]:
                own = sequences[i]["mask_ids"]
                ids[r, start : start + n] = np.where(own > 0, own + size - 1, 0)
                table.append(sequences[i]["mask_table"])
                size += len(table[-1])
            start += n
        row_tables.append(np.concatenate(table))
    K = _LEAST_MASKS
    while K < max(map(len, row_tables)):
        K *= 2
    tables = np.full((shape[0], K, words[0]), 2**32 - 1, np.uint32)
    for r, table_of_row in enumerate(row_tables):
        tables[r, : len(table_of_row)] = table_of_row
    arrays: dict[str, Any] = dict(ids=ids, tables=tables)
    return TokenMasks(**arrays)


def unpack(values: np.ndarray, batch: TokenBatch, num_sequences: int) -> list[np.ndarray]:
    """Splits the values [B, T] of a batch into one array per sequence, in the order of `pack`."""
    flat_ids = np.asarray(batch.sequence_ids).reshape(-1)
    flat = np.asarray(values).reshape(-1)
    order = np.argsort(flat_ids, kind="stable")
    counts = np.bincount(flat_ids[flat_ids >= 0], minlength=num_sequences)
    first = np.searchsorted(flat_ids[order], 0)
    return np.split(flat[order][first:], np.cumsum(counts))[:num_sequences]


def micro_batches(batch: TokenBatch, rows: int) -> TokenBatch:
    """Reshapes [B, T] to [B / rows, rows, T] for gradient accumulation."""
    B = batch.tokens.shape[0]
    if B % rows:
        raise ValueError(f"{B} rows do not split into micro-batches of {rows} rows")
    return jax.tree.map(lambda x: x.reshape(B // rows, rows, *x.shape[1:]), batch)


def with_arrays(batch: TokenBatch, **arrays: np.ndarray) -> TokenBatch:
    """Returns a batch of NumPy arrays, some of which are replaced."""
    changes: dict[str, Any] = dict(arrays)
    return dataclasses.replace(batch, **changes)


def padding_share(batch: TokenBatch) -> float:
    """Returns the fraction of positions that hold no token."""
    return float(np.mean(np.asarray(batch.segment_ids) == 0))


def pad_micro_batches(batch: TokenBatch, count: int) -> TokenBatch:
    """Extends [M, B, T] to [count, B, T] with empty micro-batches, which the update skips."""
    missing = count - batch.tokens.shape[0]
    if missing < 0:
        raise ValueError(f"{batch.tokens.shape[0]} micro-batches do not fit {count}")

    def pad(x):
        return np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])

    padded = jax.tree.map(pad, batch)
    padded.sequence_ids[batch.tokens.shape[0] :] = -1
    return padded
