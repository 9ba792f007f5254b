"""Causal attention inside the segments of packed rows on TPU, with JAX's splash attention kernel."""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

_LANES = 128  # the kernel needs row lengths of a multiple of this number
_QUERIES = 512  # queries per block
_KEYS = 1024  # keys per block


def supports_row(length: int) -> bool:
    """Returns True if rows of this many tokens can use the kernel."""
    return length % _LANES == 0


def attend_packed(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    segment_ids_BT: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Computes the same as `attention.attend_segments` on the rows and heads of one device.

    Blocks that the causal mask hides are skipped. Scores exist for one block at a time, in the
    backward pass too.

    Args:
      q_BTNH: Rotated queries; T is a multiple of 128.
      k_BTKH: Rotated keys.
      v_BTKH: Values.
      segment_ids_BT: Segment of each token; padding attends to padding.
      interpret: True to run the kernel without a TPU, for tests.

    Returns:
      [B, T, N, H], in the type of the queries.
    """
    B, T, N, H = q_BTNH.shape
    K = k_BTKH.shape[2]
    queries = _largest_divisor(T, _LANES, _QUERIES)
    keys = _largest_divisor(T, queries, _KEYS)
    kernel = splash.make_splash_mqa_single_device(
        mask=masks.MultiHeadMask([masks.CausalMask((T, T)) for _ in range(N // K)]),
        block_sizes=splash.BlockSizes(
            block_q=queries,
            block_kv=keys,
            block_kv_compute=queries,
            block_q_dkv=queries,
            block_kv_dkv=keys,
            block_kv_dkv_compute=queries,
            block_q_dq=queries,
            block_kv_dq=keys,
        ),
        interpret=interpret,
    )

    def attend_head(q_GTH, k_TH, v_TH, ids_T):
        return kernel(q_GTH, k_TH, v_TH, segment_ids=splash.SegmentIds(q=ids_T, kv=ids_T))

    attend_row = jax.vmap(attend_head, in_axes=(0, 0, 0, None))
    q_BTKGH = (q_BTNH * H**-0.5).astype(q_BTNH.dtype).reshape(B, T, K, N // K, H)
    out_BKGTH = jax.vmap(attend_row)(
        q_BTKGH.transpose(0, 2, 3, 1, 4),
        k_BTKH.swapaxes(1, 2),
        v_BTKH.swapaxes(1, 2),
        segment_ids_BT.astype(jnp.int32),
    )
    return out_BKGTH.transpose(0, 3, 1, 2, 4).reshape(B, T, N, H)


def _largest_divisor(length: int, step: int, limit: int) -> int:
    """Returns the largest multiple of `step` up to `limit` that divides a row length."""
    return max(size for size in range(step, limit + 1, step) if length % size == 0)
