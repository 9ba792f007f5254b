"""Reads and writes of a slot cache [L, B, K, S, H] on TPU, in place.

The functions compute the same as `attention.attend_cache` and `KVCache.write` on the rows and heads
of one device. XLA alone would copy the cache in every layer, because its gather and its scatter ask
for different memory layouts.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK = 512  # slots per block; a longer cache must have a multiple of this number
_MASKED = -1e30
_LANES = 128  # minor dimension of a TPU register
_TILE = 16  # slots per tile of a bfloat16 array; a float32 array has 8
_MAX_TOKENS = 64  # queries of a line that one block holds


def attend_slots(
    q_nTNH: jax.Array,
    k_LBKSH: jax.Array,
    v_LBKSH: jax.Array,
    layer: jax.Array,
    row_n: jax.Array,
    start_n: jax.Array,
    count_n: jax.Array,
    *,
    block: int = BLOCK,
    interpret: bool = False,
) -> jax.Array:
    """Computes attention of consecutive new tokens to the slots of their row.

    Reads only blocks of slots that a query of the line sees. The running softmax is described in
    arXiv:1805.02867.

    Args:
      q_nTNH: Rotated queries.
      k_LBKSH: Key cache that already contains the new tokens.
      v_LBKSH: Value cache.
      layer: Layer of the cache, int scalar.
      row_n: Cache row of each line; any row for a line without tokens.
      start_n: Slot of the first query of each line.
      count_n: Number of queries of each line; the result of further queries is undefined, and 0 in
        a line without queries.
      block: Slots per block.
      interpret: True to run the kernel without a TPU, for tests.

    Returns:
      [n, T, N, H], in the type of the queries.
    """
    n, T, N, H = q_nTNH.shape
    _, B, K, S, _ = k_LBKSH.shape
    if T > _MAX_TOKENS and T % _MAX_TOKENS == 0:
        # A long line is computed as several lines.
        parts = T // _MAX_TOKENS
        offset_1P = (jnp.arange(parts) * _MAX_TOKENS)[None]
        out = attend_slots(
            q_nTNH.reshape(n * parts, _MAX_TOKENS, N, H),
            k_LBKSH,
            v_LBKSH,
            layer,
            jnp.repeat(row_n, parts),
            (start_n[:, None] + offset_1P).reshape(-1),
            jnp.clip(count_n[:, None] - offset_1P, 0, _MAX_TOKENS).reshape(-1),
            block=block,
            interpret=interpret,
        )
        return out.reshape(n, T, N, H)
    group, block = N // K, min(block, S)
    if S % block:
        raise ValueError(f"a cache of {S} slots is no multiple of {block} slots")
    q_nKQH = _fold_groups(q_nTNH, K).astype(k_LBKSH.dtype)
    Q = q_nKQH.shape[2]
    last_n = jnp.where(count_n > 0, (start_n + count_n - 1) // block, -1)
    num_blocks = S // block if interpret else jnp.maximum(jnp.max(last_n) + 1, 1)
    scalars = (layer[None], jnp.clip(row_n, 0, B - 1), start_n, last_n)

    def cache_block(i, head, j, layer, row, start, last):
        return layer[0], row[i], head, jnp.clip(j, 0, jnp.maximum(last[i], 0)), 0

    cache_spec = pl.BlockSpec((1, 1, 1, block, H), cache_block)
    query_spec = pl.BlockSpec((1, 1, Q, H), lambda i, head, j, *_: (i, head, 0, 0))
    out_nKQH = pl.pallas_call(
        functools.partial(_attend_block, block=block, group=group),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(scalars),
            grid=(n, K, num_blocks),
            in_specs=[query_spec, cache_spec, cache_spec],
            out_specs=query_spec,
            scratch_shapes=[
                pltpu.VMEM((Q, _LANES), jnp.float32),
                pltpu.VMEM((Q, _LANES), jnp.float32),
                pltpu.VMEM((Q, H), jnp.float32),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((n, K, Q, H), q_nTNH.dtype),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        cost_estimate=pl.CostEstimate(
            flops=4 * n * K * Q * S * H,
            transcendentals=n * K * Q * S,
            bytes_accessed=2 * n * K * S * H * k_LBKSH.dtype.itemsize,
        ),
        interpret=interpret,
    )(*(x.astype(jnp.int32) for x in scalars), q_nKQH, k_LBKSH, v_LBKSH)
    out_nKTGH = out_nKQH[:, :, : T * group].reshape(n, K, T, group, H)
    return out_nKTGH.swapaxes(1, 2).reshape(n, T, N, H)


def _fold_groups(q_nTNH: jax.Array, K: int) -> jax.Array:
    """Returns scaled queries [n, K, Q, H]; Q are tokens times heads of a group, padded to a tile."""
    n, T, N, H = q_nTNH.shape
    q_nTKGH = (q_nTNH * H**-0.5).reshape(n, T, K, N // K, H)
    q_nKQH = q_nTKGH.swapaxes(1, 2).reshape(n, K, T * (N // K), H)
    return jnp.pad(q_nKQH, ((0, 0), (0, 0), (0, -(T * (N // K)) % _TILE), (0, 0)))


def _attend_block(
    layer,
    row,
    start,
    last,
    q_ref,
    k_ref,
    v_ref,
    out_ref,
    max_ref,
    sum_ref,
    mix_ref,
    *,
    block,
    group,
):
    """Adds one block of slots to the running softmax of one line and key/value head."""
    i, j = pl.program_id(0), pl.program_id(2)

    @pl.when(j == 0)
    def _begin():
        max_ref[...] = jnp.full_like(max_ref, _MASKED)
        sum_ref[...] = jnp.zeros_like(sum_ref)
        mix_ref[...] = jnp.zeros_like(mix_ref)

    @pl.when(j <= last[i])
    def _add():
        q_QH, k_SH, v_SH = q_ref[0, 0], k_ref[0, 0, 0], v_ref[0, 0, 0]
        scores_QS = jax.lax.dot_general(
            q_QH, k_SH, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        slot_QS = j * block + jax.lax.broadcasted_iota(jnp.int32, scores_QS.shape, 1)
        token_QS = jax.lax.broadcasted_iota(jnp.int32, scores_QS.shape, 0) // group
        scores_QS = jnp.where(slot_QS <= start[i] + token_QS, scores_QS, _MASKED)
        old_Q1 = max_ref[:, :1]
        new_Q1 = jnp.maximum(old_Q1, jnp.max(scores_QS, axis=1, keepdims=True))
        weights_QS = jnp.exp(scores_QS - new_Q1)
        scale_Q1 = jnp.exp(old_Q1 - new_Q1)
        mixed_QH = jnp.dot(weights_QS.astype(v_SH.dtype), v_SH, preferred_element_type=jnp.float32)
        total_Q1 = jnp.sum(weights_QS, axis=1, keepdims=True)
        max_ref[...] = jnp.broadcast_to(new_Q1, max_ref.shape)
        sum_ref[...] = sum_ref[...] * scale_Q1 + total_Q1
        mix_ref[...] = mix_ref[...] * scale_Q1 + mixed_QH

    @pl.when(j == pl.num_programs(2) - 1)
    def _end():
        sum_Q1 = sum_ref[:, :1]
        out_ref[0, 0] = (mix_ref[...] / jnp.where(sum_Q1 == 0, 1.0, sum_Q1)).astype(out_ref.dtype)


def write_tokens(
    k_LBKSH: jax.Array,
    v_LBKSH: jax.Array,
    k_BKH: jax.Array,
    v_BKH: jax.Array,
    layer: jax.Array,
    slot_B: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Writes one new token per row into the caches, in place; a slot outside [0, S) is dropped."""
    B, K, H = k_BKH.shape
    S = k_LBKSH.shape[3]
    tile = min(_TILE, S)

    def cache_tile(i, layer, slot):
        return layer[0], i, 0, jnp.clip(slot[i], 0, S - 1) // tile, 0

    cache_spec = pl.BlockSpec((1, 1, K, tile, H), cache_tile)
    token_spec = pl.BlockSpec((1, K, H), lambda i, *_: (i, 0, 0))
    return pl.pallas_call(
        functools.partial(_write_tile, tile=tile, num_slots=S),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(B,),
            in_specs=[token_spec, token_spec, cache_spec, cache_spec],
            out_specs=[cache_spec, cache_spec],
        ),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (k_LBKSH, v_LBKSH)],
        input_output_aliases={4: 0, 5: 1},
        cost_estimate=pl.CostEstimate(
            flops=0,
            transcendentals=0,
            bytes_accessed=4 * B * K * tile * H * k_LBKSH.dtype.itemsize,
        ),
        interpret=interpret,
    )(
        layer[None].astype(jnp.int32),
        slot_B.astype(jnp.int32),
        k_BKH.astype(k_LBKSH.dtype),
        v_BKH.astype(v_LBKSH.dtype),
        k_LBKSH,
        v_LBKSH,
    )


def _write_tile(layer, slot, k_new, v_new, k_in, v_in, k_out, v_out, *, tile, num_slots):
    at = slot[pl.program_id(0)]
    place = jax.lax.broadcasted_iota(jnp.int32, k_in.shape, 3)
    is_new = (place == at % tile) & (at >= 0) & (at < num_slots)
    k_out[...] = jnp.where(is_new, k_new[...][None, :, :, None], k_in[...])
    v_out[...] = jnp.where(is_new, v_new[...][None, :, :, None], v_in[...])


def write_lines(
    cache_LBKSH: jax.Array,
    new_nTKH: jax.Array,
    layer: jax.Array,
    row_n: jax.Array,
    start_n: jax.Array,
    count_n: jax.Array,
) -> jax.Array:
    """Writes the first `count_n` tokens of each line to consecutive slots of a row, in place.

    Lines are written one after the other. Each line reads and writes a window of T slots.
    """
    n, T, K, H = new_nTKH.shape
    S = cache_LBKSH.shape[3]
    if T > S:
        raise ValueError(f"lines of {T} tokens do not fit a cache of {S} slots")
    new_nKTH = new_nTKH.swapaxes(1, 2).astype(cache_LBKSH.dtype)

    def write_line(i, cache_LBKSH):
        # A window that begins at the first slot would exceed the cache near its end.
        window = jnp.clip(start_n[i], 0, S - T)
        shift = start_n[i] - window
        place_T = jnp.arange(T)
        is_new_T = (place_T >= shift) & (place_T < shift + count_n[i])
        at = (layer, row_n[i], 0, window, 0)
        old_KTH = jax.lax.dynamic_slice(cache_LBKSH, at, (1, 1, K, T, H))[0, 0]
        shifted_KTH = jnp.roll(new_nKTH[i], shift, axis=1)
        both_KTH = jnp.where(is_new_T[None, :, None], shifted_KTH, old_KTH)
        return jax.lax.dynamic_update_slice(cache_LBKSH, both_KTH[None, None], at)

    return jax.lax.fori_loop(0, n, write_line, cache_LBKSH)
