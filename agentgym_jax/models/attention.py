"""Attention of packed rows and of cached rows.

G query heads share one key/value head (N = K * G). Products are computed in the type of the inputs,
the softmax in float32. Masks and scores exist for one block at a time.
"""

import functools

import chex
import jax
import jax.numpy as jnp

from agentgym_jax.models.bfloat16_bits import from_bits

# Finite replacement for -inf, because -inf - -inf is NaN. exp(_MASKED - max) is exactly 0.
BLOCK = 128  # tokens per side of a block
MAX_BLOCKS = 16  # number of blocks per side of a packed row
_MASKED = -1e30


def _group(q_BTNH: jax.Array, num_kv_heads: int) -> jax.Array:
    """Scales queries by 1 / sqrt(H) and reshapes them to [B, K, G, T, H]."""
    B, T, N, H = q_BTNH.shape
    q_BTKGH = (q_BTNH * H**-0.5).reshape(B, T, num_kv_heads, N // num_kv_heads, H)
    return q_BTKGH.transpose(0, 2, 3, 1, 4)


def _ungroup(out_BKGTH: jax.Array) -> jax.Array:
    B, K, G, T, H = out_BKGTH.shape
    return out_BKGTH.transpose(0, 3, 1, 2, 4).reshape(B, T, K * G, H)


def attend_segments(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    segment_ids_BT: jax.Array,
    *,
    block: int = BLOCK,
) -> jax.Array:
    """Computes causal attention within each segment of packed rows: [B, T, N, H].

    Queries and keys already have rotary embeddings. Segments are contiguous; padding is segment 0,
    which attends to itself. Square blocks of queries and keys are skipped if no query of any row
    sees their keys, so the cost depends on the segments. `block` is the minimum side of a block,
    in tokens. A row has at most 16 blocks of queries, which are computed in sequence.
    """
    chex.assert_rank([q_BTNH, k_BTKH, v_BTKH, segment_ids_BT], [4, 4, 4, 2])
    chex.assert_equal_shape([k_BTKH, v_BTKH])
    chex.assert_equal_shape_prefix([q_BTNH, k_BTKH, segment_ids_BT], 2)
    T = q_BTNH.shape[1]
    block = min(T, max(block, -(-T // MAX_BLOCKS)))
    filling = ((0, 0), (0, -T % block), (0, 0), (0, 0))
    q_BKGTH = _group(jnp.pad(q_BTNH, filling), k_BTKH.shape[2])
    k_BKSH, v_BKSH = (jnp.pad(x, filling).transpose(0, 2, 1, 3) for x in (k_BTKH, v_BTKH))
    segment_ids_BT = jnp.pad(segment_ids_BT, filling[:2], constant_values=-1)
    out_BKGTH = _attend_blocks(q_BKGTH, k_BKSH, v_BKSH, segment_ids_BT, block)
    return _ungroup(out_BKGTH)[:, :T]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend_blocks(
    q_BKGTH: jax.Array, k_BKSH: jax.Array, v_BKSH: jax.Array, ids_BT: jax.Array, block: int
) -> jax.Array:
    """Computes attention with a running softmax (arXiv:1805.02867).

    The backward pass recomputes the attention weights with each query's stored normaliser
    (arXiv:2205.14135, appendix B.2).
    """
    return _attend_blocks_forward(q_BKGTH, k_BKSH, v_BKSH, ids_BT, block)[0]


def _attend_blocks_forward(q_BKGTH, k_BKSH, v_BKSH, ids_BT, block):
    first_key_Q = _first_key_blocks(ids_BT, block)

    def queries(i, carry):
        out_BKGTH, normaliser_BKGT1 = carry
        q_BKGtH = _block(q_BKGTH, i, block, 3)

        def keys(j, carry):
            max_BKGt1, sum_BKGt1, out_BKGtH = carry
            scores = _scores(q_BKGtH, _block(k_BKSH, j, block, 2))
            scores = jnp.where(_block_mask(ids_BT, i, j, block), scores, _MASKED)
            new_max_BKGt1 = jnp.maximum(max_BKGt1, jnp.max(scores, axis=-1, keepdims=True))
            scale_BKGt1 = jnp.exp(max_BKGt1 - new_max_BKGt1)
            weights = jnp.exp(scores - new_max_BKGt1)
            sum_BKGt1 = sum_BKGt1 * scale_BKGt1 + jnp.sum(weights, axis=-1, keepdims=True)
            mixed_BKGtH = _mix(weights, _block(v_BKSH, j, block, 2))
            return new_max_BKGt1, sum_BKGt1, out_BKGtH * scale_BKGt1 + mixed_BKGtH

        zeros_BKGtH = jnp.zeros(q_BKGtH.shape, jnp.float32)
        zeros_BKGt1 = zeros_BKGtH[..., :1]
        # In the diagonal block every query sees itself, so no running maximum remains _MASKED.
        carry = keys(i, (zeros_BKGt1 + _MASKED, zeros_BKGt1, zeros_BKGtH))
        with jax.named_scope("key_blocks"):
            max_BKGt1, sum_BKGt1, out_BKGtH = jax.lax.fori_loop(first_key_Q[i], i, keys, carry)
        out_BKGtH = (out_BKGtH / sum_BKGt1).astype(q_BKGTH.dtype)
        return (
            _put_block(out_BKGTH, out_BKGtH, i, block, 3),
            _put_block(normaliser_BKGT1, max_BKGt1 + jnp.log(sum_BKGt1), i, block, 3),
        )

    normaliser_BKGT1 = jnp.zeros((*q_BKGTH.shape[:-1], 1), jnp.float32)
    out_BKGTH, normaliser_BKGT1 = jax.lax.fori_loop(
        0, len(first_key_Q), queries, (jnp.zeros_like(q_BKGTH), normaliser_BKGT1)
    )
    return out_BKGTH, (q_BKGTH, k_BKSH, v_BKSH, ids_BT, out_BKGTH, normaliser_BKGT1)


def _attend_blocks_backward(block, saved, d_out_BKGTH):
    q_BKGTH, k_BKSH, v_BKSH, ids_BT, out_BKGTH, normaliser_BKGT1 = saved
    dtype = q_BKGTH.dtype
    first_key_Q = _first_key_blocks(ids_BT, block)
    products = d_out_BKGTH.astype(jnp.float32) * out_BKGTH.astype(jnp.float32)
    mean_BKGT1 = jnp.sum(products, axis=-1, keepdims=True)

    # The gradients of keys and values are sums over queries. A product with a transposed left
    # operand is slow on CPU, so queries are the last axis and the sums are [B, K, H, S].
    q_BKHGT, d_out_BKHGT = (x.transpose(0, 1, 4, 2, 3) for x in (q_BKGTH, d_out_BKGTH))

    def queries(i, carry):
        d_q_BKGTH, d_k_BKHS, d_v_BKHS = carry
        q_BKGtH, d_out_BKGtH, normaliser_BKGt1, mean_BKGt1 = (
            _block(x, i, block, 3) for x in (q_BKGTH, d_out_BKGTH, normaliser_BKGT1, mean_BKGT1)
        )
        q_BKHGt, d_out_BKHGt = (_block(x, i, block, 4) for x in (q_BKHGT, d_out_BKHGT))

        def keys(j, carry):
            d_q_BKGtH, d_k_BKHS, d_v_BKHS = carry
            k_BKsH, v_BKsH = _block(k_BKSH, j, block, 2), _block(v_BKSH, j, block, 2)
            weights = jnp.exp(_scores(q_BKGtH, k_BKsH) - normaliser_BKGt1)
            weights = jnp.where(_block_mask(ids_BT, i, j, block), weights, 0.0)
            d_scores = weights * (_scores(d_out_BKGtH, v_BKsH) - mean_BKGt1)
            d_k_BKHs = _mix_queries(q_BKHGt, d_scores)
            d_v_BKHs = _mix_queries(d_out_BKHGt, weights)
            return (
                d_q_BKGtH + _mix(d_scores, k_BKsH),
                _put_block(d_k_BKHS, _block(d_k_BKHS, j, block, 3) + d_k_BKHs, j, block, 3),
                _put_block(d_v_BKHS, _block(d_v_BKHS, j, block, 3) + d_v_BKHs, j, block, 3),
            )

        d_q_BKGtH = jnp.zeros(q_BKGtH.shape, jnp.float32)
        with jax.named_scope("key_blocks"):
            d_q_BKGtH, d_k_BKHS, d_v_BKHS = jax.lax.fori_loop(
                first_key_Q[i], i + 1, keys, (d_q_BKGtH, d_k_BKHS, d_v_BKHS)
            )
        return _put_block(d_q_BKGTH, d_q_BKGtH, i, block, 3), d_k_BKHS, d_v_BKHS

    zeros = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q_BKGTH, k_BKSH.mT, v_BKSH.mT))
    d_q_BKGTH, d_k_BKHS, d_v_BKHS = jax.lax.fori_loop(0, len(first_key_Q), queries, zeros)
    return d_q_BKGTH.astype(dtype), d_k_BKHS.mT.astype(dtype), d_v_BKHS.mT.astype(dtype), None


_attend_blocks.defvjp(_attend_blocks_forward, _attend_blocks_backward)


def _first_key_blocks(ids_BT: jax.Array, block: int) -> jax.Array:
    """Returns the first key block that any row sees, for each query block: int [T / block]."""
    is_first_BT = jnp.diff(ids_BT, axis=1, prepend=ids_BT[:, :1] - 1) != 0
    start_BT = jax.lax.cummax(jnp.where(is_first_BT, jnp.arange(ids_BT.shape[1]), 0), axis=1)
    return jnp.min(start_BT[:, ::block], axis=0) // block


def _block_mask(ids_BT: jax.Array, i, j, block: int) -> jax.Array:
    """Returns the causal mask within segments of query block i and key block j: [B, 1, 1, t, s]."""
    query_ids_Bt, key_ids_Bs = _block(ids_BT, i, block, 1), _block(ids_BT, j, block, 1)
    query_t = i * block + jnp.arange(block)
    key_s = j * block + jnp.arange(block)
    mask_Bts = query_ids_Bt[:, :, None] == key_ids_Bs[:, None, :]
    mask_Bts &= (query_t[:, None] >= key_s[None, :])[None]
    return mask_Bts[:, None, None]


def _block(x: jax.Array, i, block: int, axis: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(x, i * block, block, axis)


def _put_block(x: jax.Array, values: jax.Array, i, block: int, axis: int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(x, values, i * block, axis)


# The next three functions fold the heads of a group into the token axis, because on CPU a batch of
# matrix products is faster than the same einsum over five axes.


def _scores(a_BKGTH: jax.Array, b_BKSH: jax.Array) -> jax.Array:
    """Returns dot products over H: float32 [B, K, G, T, S]."""
    B, K, G, T, H = a_BKGTH.shape
    flat = jnp.matmul(
        a_BKGTH.reshape(B, K, G * T, H), b_BKSH.mT, preferred_element_type=jnp.float32
    )
    return flat.reshape(B, K, G, T, -1)


def _mix(weights_BKGTS: jax.Array, x_BKSH: jax.Array) -> jax.Array:
    """Returns sums over S: float32 [B, K, G, T, H]."""
    B, K, G, T, S = weights_BKGTS.shape
    flat = weights_BKGTS.reshape(B, K, G * T, S).astype(x_BKSH.dtype)
    return jnp.matmul(flat, x_BKSH, preferred_element_type=jnp.float32).reshape(B, K, G, T, -1)


def _mix_queries(x_BKHGT: jax.Array, weights_BKGTS: jax.Array) -> jax.Array:
    """Returns sums over the queries of a group: float32 [B, K, H, S]."""
    B, K, G, T, S = weights_BKGTS.shape
    x_BKHX = x_BKHGT.reshape(B, K, -1, G * T)
    weights_BKXS = weights_BKGTS.reshape(B, K, G * T, S).astype(x_BKHX.dtype)
    return jnp.matmul(x_BKHX, weights_BKXS, preferred_element_type=jnp.float32)


def attend_cache(
    q_nTNH: jax.Array,
    k_LBKSH,
    v_LBKSH,
    layer,
    row_n,
    positions_nT,
    *,
    scales: tuple[jax.Array, jax.Array] | None = None,
    key_block: int = BLOCK,
) -> jax.Array:
    """Computes attention of new tokens to the slots of their row, up to their position.

    Loops over blocks of slots with a running softmax (arXiv:1805.02867), up to the last position of
    any row. For a row that does not see a block, the sums are multiplied by exp(0) = 1 and 0 is
    added. The result of a row therefore does not depend on the lengths of other rows.

    Args:
      q_nTNH: Rotated queries.
      k_LBKSH: Key cache that already contains the new tokens.
      v_LBKSH: Value cache.
      layer: Layer of the cache, int scalar.
      row_n: Cache row of each line of queries; a row outside [0, B) is allowed for padding only.
        None means that n = B and that line b uses row b.
      positions_nT: Slot of each query; a position outside [0, S) marks padding, whose result is 0.
      scales: Scales of an int8 cache (`KVCache.scales`). An int8 value is exact in the products,
        and the scale of a slot multiplies its scores and weights.
      key_block: Slots per block.

    Returns:
      [n, T, N, H], in the type of the queries.
    """
    chex.assert_rank([q_nTNH, k_LBKSH, v_LBKSH, positions_nT], [4, 5, 5, 2])
    chex.assert_equal_shape([k_LBKSH, v_LBKSH])
    S, K = k_LBKSH.shape[3], k_LBKSH.shape[2]
    block = min(key_block, S)
    q_nKGTH = _group(q_nTNH, K)
    live = jnp.max(jnp.where(positions_nT < S, positions_nT, -1)) + 1

    def step(i, carry):
        max_nKGT1, sum_nKGT1, out_nKGTH = carry
        # The last block is moved left to stay inside the cache; slots of earlier blocks are masked.
        start = jnp.minimum(i * block, S - block)
        k_nKSH = from_bits(_slots(k_LBKSH, layer, row_n, start, block))
        v_nKSH = from_bits(_slots(v_LBKSH, layer, row_n, start, block))
        k_scale = v_scale = None
        if scales is not None:
            k_nKSH, v_nKSH = k_nKSH.astype(q_nTNH.dtype), v_nKSH.astype(q_nTNH.dtype)
            k_scale, v_scale = (
                _slots(x, layer, row_n, start, block)[:, :, None, None] for x in scales
            )
        slots_S = start + jnp.arange(block)
        positions_nT1 = positions_nT[:, :, None]
        mask_nTS = (slots_S[None, None, :] <= positions_nT1) & (positions_nT1 < S)
        mask = mask_nTS[:, None, None]
        mask &= (slots_S >= i * block)[None, None, None, None]
        scores = _scores(q_nKGTH, k_nKSH)
        scores = scores if k_scale is None else scores * k_scale
        scores = jnp.where(mask, scores, _MASKED)
        new_max_nKGT1 = jnp.maximum(max_nKGT1, jnp.max(scores, axis=-1, keepdims=True))
        scale_nKGT1 = jnp.exp(max_nKGT1 - new_max_nKGT1)
        weights = jnp.where(mask, jnp.exp(scores - new_max_nKGT1), 0.0)
        sum_nKGT1 = sum_nKGT1 * scale_nKGT1 + jnp.sum(weights, axis=-1, keepdims=True)
        weights = weights if v_scale is None else weights * v_scale
        return new_max_nKGT1, sum_nKGT1, out_nKGTH * scale_nKGT1 + _mix(weights, v_nKSH)

    zeros_nKGTH = jnp.zeros(q_nKGTH.shape, jnp.float32)
    zeros_nKGT1 = zeros_nKGTH[..., :1]
    with jax.named_scope("cache_blocks"):
        _, sum_nKGT1, out_nKGTH = jax.lax.fori_loop(
            0, -(-live // block), step, (zeros_nKGT1 + _MASKED, zeros_nKGT1, zeros_nKGTH)
        )
    out_nKGTH = out_nKGTH / jnp.where(sum_nKGT1 == 0, 1.0, sum_nKGT1)  # a sum of 0 marks padding
    return _ungroup(out_nKGTH.astype(q_nTNH.dtype))


def _slots(x: jax.Array, layer, row_n: jax.Array | None, start, block: int) -> jax.Array:
    """Returns slots start .. start + block - 1 of some rows of a layer: [n, K, block, ...]."""
    _, B, K, _, *rest = x.shape
    zeros = (0,) * len(rest)
    if row_n is None:
        return jax.lax.dynamic_slice(x, (layer, 0, 0, start, *zeros), (1, B, K, block, *rest))[0]

    def one(row):
        size = (1, 1, K, block, *rest)
        return jax.lax.dynamic_slice(x, (layer, row, 0, start, *zeros), size)[0, 0]

    return jax.vmap(one)(row_n)
