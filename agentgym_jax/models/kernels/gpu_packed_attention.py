"""Causal attention inside the segments of packed rows on GPU, with JAX's Triton kernel."""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu import attention as triton_attention

_QUERIES = 128  # queries per block of the forward pass; the kernel needs a multiple of them


def supports_row(length: int) -> bool:
    """Returns True if rows of this many tokens can use the kernel."""
    return length % _QUERIES == 0


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
    backward pass too. Keys and values are repeated for the heads of their group.

    Args:
      q_BTNH: Rotated queries; T is a multiple of 128.
      k_BTKH: Rotated keys.
      v_BTKH: Values.
      segment_ids_BT: Segment of each token; padding attends to padding.
      interpret: True to run the kernel without a GPU, for tests.

    Returns:
      [B, T, N, H], in the type of the queries.
    """
    N, H = q_BTNH.shape[2:]
    group = N // k_BTKH.shape[2]
    return triton_attention.mha(
        q_BTNH,
        jnp.repeat(k_BTKH, group, axis=2),
        jnp.repeat(v_BTKH, group, axis=2),
        segment_ids_BT.astype(jnp.int32),
        sm_scale=H**-0.5,
        causal=True,
        block_sizes=_block_sizes(q_BTNH.dtype),
        interpret=interpret,
    )


def mean_key_blocks(length: int, dtype: jax.typing.DTypeLike) -> dict[str, float]:
    """Returns the mean iterations of the loops of each kernel, for plans of rows of this length."""
    sizes = _block_sizes(dtype)
    return {
        "mha_forward": (length + sizes.block_q) / 2 / sizes.block_k,
        "mha_backward": (length + sizes.block_q_dq) / 2 / sizes.block_kv_dq,
    }


def _block_sizes(dtype: jax.typing.DTypeLike) -> triton_attention.BlockSizes:
    """Returns the largest blocks whose sums fit the registers of an H100 with heads of 128."""
    side = 64 if jnp.dtype(dtype).itemsize == 2 else 32
    return triton_attention.BlockSizes(
        block_q=min(2 * side, _QUERIES),
        block_k=side,
        block_q_dkv=side,
        block_kv_dkv=side,
        block_q_dq=side,
        block_kv_dq=side,
    )
