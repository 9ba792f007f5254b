"""Scores of tokens: packs sequences into micro-batches, scores them on the devices, unpacks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.learner.update import own_rows, put_batch
from agentgym_jax.mesh.sharding import Layout, launch_lock, to_host

Score = Callable[[TokenBatch], jax.Array | np.ndarray]


def score_sequences(
    score: Score,
    sequences: Sequence[Mapping[str, Any]],
    *,
    row_length: int,
    micro_rows: int,
    layout: Layout | None,
    is_divided: bool = False,
) -> list[np.ndarray]:
    """Returns the score of every token, one array per sequence; arguments as of `batch.pack`.

    With `is_divided` each process loads only the sequences in the rows of its devices.
    """
    packed = batching.pack(
        sequences,
        row_length=row_length,
        rows_multiple=micro_rows,
        own_rows=own_rows(micro_rows, layout) if is_divided else None,
    )
    batch = batching.micro_batches(packed, micro_rows)
    scores = score_micro_batches(score, put_micro_batches(batch, layout))
    return batching.unpack(scores, batch, len(sequences))


def put_micro_batches(batch: TokenBatch, layout: Layout | None) -> list[TokenBatch]:
    """Returns M micro-batches on the devices, given a host batch [M, B, T]."""
    return [
        put_batch(jax.tree.map(lambda x, m=m: x[m], batch), layout)
        for m in range(batch.tokens.shape[0])
    ]


def score_micro_batches(score: Score, micro_batches: Sequence[TokenBatch]) -> np.ndarray:
    """Returns the scores [M, B, T] of the tokens."""
    scores = []
    for batch in micro_batches:
        with launch_lock:
            scores.append(score(batch))
    return np.stack(to_host(scores))
