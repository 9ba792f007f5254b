"""TokenBatch: what the learner sees, and the packing of sequences into its rows.

Index `t` of every array speaks about token `t` itself: its log-probability given the
tokens before it, its advantage, its weight. The next-token shift exists once, in
`models/token_logprobs.py`.
"""

from collections.abc import Mapping, Sequence

import chex
import flax.struct
import jax
import numpy as np


@flax.struct.dataclass
class TokenBatch:
    """Packed rows. Segment 0 is padding; segments of a row are 1, 2, ... from the left.

    Leading axes may be [B, T] or, stacked into micro-batches, [M, B, T].
    """

    tokens: jax.Array  # int32 [B, T]
    positions: jax.Array  # int32 [B, T], restart at 0 in every segment
    segment_ids: jax.Array  # int32 [B, T]
    action_mask: jax.Array  # bool [B, T], tokens that are trained
    weights: jax.Array  # float32 [B, T], weight of the token in the loss; 0 off the mask
    advantages: jax.Array  # float32 [B, T], 0 off the mask
    old_logprobs: jax.Array  # float32 [B, T], under the policy that the ratio is against
    reference_logprobs: jax.Array  # float32 [B, T], 0 where no reference is used
    sequence_ids: jax.Array  # int32 [B, T], index of the packed sequence; -1 on padding
    returns: jax.Array  # float32 [B, T], what a critic learns; 0 without one
    old_values: jax.Array  # float32 [B, T], of the critic at the start of the step; 0 without one

    def check(self) -> None:
        """Asserts shapes and types."""
        chex.assert_equal_shape(jax.tree.leaves(self))
        chex.assert_type(
            [self.tokens, self.positions, self.segment_ids, self.sequence_ids], [int] * 4
        )
        chex.assert_type(self.action_mask, bool)
        floats = [self.weights, self.advantages, self.old_logprobs, self.reference_logprobs]
        chex.assert_type([*floats, self.returns, self.old_values], float)


_FLOATS = (
    "weights",
    "advantages",
    "old_logprobs",
    "reference_logprobs",
    "returns",
    "old_values",
)


def assign_rows(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """First-fit decreasing: indices of the sequences in each row, longest first.

    Deterministic: equal lengths keep their order.

    Raises:
      ValueError: a sequence is longer than a row.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    if order and lengths[order[0]] > row_length:
        raise ValueError(
            f"sequence {order[0]} has {lengths[order[0]]} tokens, a row holds {row_length}. "
            "Raise config.learner.row_length or lower the token limit of an episode."
        )
    rows: list[list[int]] = []
    room: list[int] = []
    for i in order:
        fitting = (r for r, free in enumerate(room) if free >= lengths[i])
        r = next(fitting, None)
        if r is None:
            rows.append([])
            room.append(row_length)
            r = len(rows) - 1
        rows[r].append(i)
        room[r] -= lengths[i]
    return rows


def tightest_row_length(
    lengths: Sequence[int], row_length: int, rows_multiple: int, halvings: int
) -> int:
    """The row length that needs the fewest positions, the longest of equals.

    Rows must be as long as the longest episode may become; most batches have none like it, and a
    batch of a few long rows is mostly the room that is left in the last ones.

    Args:
      lengths: tokens of the sequences to be packed.
      row_length: the longest choice, in tokens.
      rows_multiple: as for `pack`.
      halvings: how often `row_length` may be halved: each length is a program of its own.

    Raises:
      ValueError: a sequence is longer than `row_length`.
    """
    longest = max(lengths, default=0)
    choices = [row_length >> k for k in range(halvings + 1) if row_length % (1 << k) == 0]
    fitting = [choice for choice in choices if choice >= longest] or [row_length]

    def positions(choice: int) -> int:
        return choice * _rows(len(assign_rows(lengths, choice)), rows_multiple)

    return min(fitting, key=positions)


def _rows(filled: int, multiple: int) -> int:
    return max(1, -(-filled // multiple)) * multiple


def pack(
    sequences: Sequence[Mapping[str, np.ndarray]],
    *,
    row_length: int,
    rows_multiple: int,
) -> TokenBatch:
    """Packs token sequences into `[B, T]` rows of NumPy arrays.

    Args:
      sequences: per sequence a mapping with `tokens`, `action_mask` and, optionally,
        the float arrays of TokenBatch (missing: zeros).
      row_length: T, in tokens.
      rows_multiple: B is rounded up to a multiple of this with empty rows.
    """
    rows = assign_rows([len(s["tokens"]) for s in sequences], row_length)
    B = _rows(len(rows), rows_multiple)
    shape = (B, row_length)
    ints = {k: np.zeros(shape, np.int32) for k in ("tokens", "positions", "segment_ids")}
    sequence_ids = np.full(shape, -1, np.int32)
    action_mask = np.zeros(shape, bool)
    floats = {k: np.zeros(shape, np.float32) for k in _FLOATS}
    for r, members in enumerate(rows):
        start = 0
        for segment, i in enumerate(members, 1):
            sequence = sequences[i]
            n = len(sequence["tokens"])
            span = (r, slice(start, start + n))
            ints["tokens"][span] = sequence["tokens"]
            ints["positions"][span] = np.arange(n)
            ints["segment_ids"][span] = segment
            sequence_ids[span] = i
            action_mask[span] = sequence["action_mask"]
            for name in _FLOATS:
                if name in sequence:
                    floats[name][span] = sequence[name]
            start += n
    return TokenBatch(action_mask=action_mask, sequence_ids=sequence_ids, **ints, **floats)


def unpack(values: np.ndarray, batch: TokenBatch, num_sequences: int) -> list[np.ndarray]:
    """Per-token values of a packed batch back to one array per sequence, in the order packed."""
    flat_ids = np.asarray(batch.sequence_ids).reshape(-1)
    flat = np.asarray(values).reshape(-1)
    order = np.argsort(flat_ids, kind="stable")
    counts = np.bincount(flat_ids[flat_ids >= 0], minlength=num_sequences)
    first = np.searchsorted(flat_ids[order], 0)
    return np.split(flat[order][first:], np.cumsum(counts))[:num_sequences]


def micro_batches(batch: TokenBatch, rows: int) -> TokenBatch:
    """[B, T] -> [B / rows, rows, T] for gradient accumulation."""
    B = batch.tokens.shape[0]
    if B % rows:
        raise ValueError(f"{B} rows do not split into micro-batches of {rows} rows")
    return jax.tree.map(lambda x: x.reshape(B // rows, rows, *x.shape[1:]), batch)


def padding_share(batch: TokenBatch) -> float:
    """Share of the positions that hold no token."""
    return float(np.mean(np.asarray(batch.segment_ids) == 0))


def pad_micro_batches(batch: TokenBatch, count: int) -> TokenBatch:
    """[M, B, T] -> [count, B, T] with empty micro-batches at the end, which the update passes over."""
    missing = count - batch.tokens.shape[0]
    if missing < 0:
        raise ValueError(f"{batch.tokens.shape[0]} micro-batches do not fit {count}")

    def pad(x):
        return np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])

    padded = jax.tree.map(pad, batch)
    padded.sequence_ids[batch.tokens.shape[0] :] = -1
    return padded
