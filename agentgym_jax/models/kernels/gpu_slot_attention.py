"""Attention to the slots of a cache [L, B, K, S, H] on GPU, with a Triton kernel.

The kernel reads the cache where it is. Plain JAX would copy each block of slots before its matrix
products, and would launch about ten kernels per block.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

_MASKED = -1e30
_SIDE = 16  # smallest side of a matrix product in Triton
_QUERIES = 64  # maximum number of queries per program
_SLOT_BYTES = 128  # slots per block times the bytes of a number; a block must fit on the chip
_PROGRAMS = 256  # programs that keep a GPU busy; an H100 has 132 processors


def supports(num_slots: int, head_size: int) -> bool:
    """Returns True if a cache of these sizes can use the kernel."""
    is_power_of_two = head_size & (head_size - 1) == 0
    return num_slots >= _SIDE and head_size >= _SIDE and is_power_of_two


def attend_slots(
    q_nTNH: jax.Array,
    k_LBKSH: jax.Array,
    v_LBKSH: jax.Array,
    layer: jax.Array,
    row_n: jax.Array,
    start_n: jax.Array,
    count_n: jax.Array,
    *,
    scales: tuple[jax.Array, jax.Array] | None = None,
    splits: int | None = None,
    interpret: bool = False,
) -> jax.Array:
    """Computes attention of consecutive new tokens to the slots of their row.

    One program computes a block of queries of one key/value head, with a running softmax
    (arXiv:1805.02867). It reads only the slots that its queries see. If there are few programs, the
    slots of a row are divided over several programs, whose results are then combined.

    Arguments and result are those of `slot_attention.attend_slots`, except for `scales`, those of an
    int8 cache as in `attend_cache`, and `splits`, the number of programs that share the slots of a
    row; None chooses it from the shapes.
    """
    n, T, N, H = q_nTNH.shape
    _, B, K, S, _ = k_LBKSH.shape
    group = N // K
    dtype = k_LBKSH.dtype if scales is None else q_nTNH.dtype  # of the products
    q_nKQH = (q_nTNH * H**-0.5).astype(dtype).reshape(n, T, K, group, H)
    q_nKQH = q_nKQH.swapaxes(1, 2).reshape(n, K, T * group, H)
    side = min(_QUERIES, max(_SIDE, pl.next_power_of_2(T * group)))
    q_nKQH = jnp.pad(q_nKQH, ((0, 0), (0, 0), (0, -(T * group) % side), (0, 0)))
    Q = q_nKQH.shape[2]
    block = min(_SLOT_BYTES // dtype.itemsize, pl.next_power_of_2(S + 1) // 2)
    if splits is None:
        splits = max(1, min(_PROGRAMS // (n * K * (Q // side)), S // (4 * block)))
    places = jnp.stack([jnp.clip(row_n, 0, B - 1), start_n, count_n], axis=1).astype(jnp.int32)
    caches = (k_LBKSH, v_LBKSH, *(scales or ()))
    slot_bytes = sum(x.dtype.itemsize * x.size for x in caches) // (k_LBKSH.size // H)
    moved = n * K * S * slot_bytes + 2 * n * K * Q * H * dtype.itemsize
    out_nKXQH, weight_nKXQ = pl.pallas_call(
        functools.partial(_attend_part, group=group, block=block, splits=splits),
        grid=(n, K, Q // side * splits),
        in_specs=[
            pl.BlockSpec((1,), lambda i, head, x: (0,)),
            pl.BlockSpec((None, 3), lambda i, head, x: (i, 0)),
            pl.BlockSpec((None, None, side, H), lambda i, head, x: (i, head, x // splits, 0)),
            *(pl.BlockSpec(c.shape, lambda i, head, x, c=c: (0,) * c.ndim) for c in caches),
        ],
        out_specs=[
            pl.BlockSpec(
                (None, None, None, side, H),
                lambda i, head, x: (i, head, x % splits, x // splits, 0),
            ),
            pl.BlockSpec(
                (None, None, None, side), lambda i, head, x: (i, head, x % splits, x // splits)
            ),
        ],
        out_shape=[
            jax.ShapeDtypeStruct(
                (n, K, splits, Q, H), q_nTNH.dtype if splits == 1 else jnp.float32
            ),
            jax.ShapeDtypeStruct((n, K, splits, Q), jnp.float32),
        ],
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
        cost_estimate=pl.CostEstimate(
            flops=4 * n * K * T * group * S * H,
            transcendentals=n * K * T * group * S,
            bytes_accessed=moved,
        ),
        metadata={"bytes_accessed": str(moved)},
        name="attend_slots",
        interpret=interpret,
    )(jnp.asarray(layer, jnp.int32)[None], places, q_nKQH, *caches)
    out_nKQH = _combine(out_nKXQH, weight_nKXQ)[:, :, : T * group].astype(q_nTNH.dtype)
    return out_nKQH.reshape(n, K, T, group, H).swapaxes(1, 2).reshape(n, T, N, H)


def _attend_part(layer_ref, place_ref, q_ref, k_ref, v_ref, *refs, group, block, splits):
    """Computes attention of a block of queries to its part of the slots, and their weight.

    `refs` are the scales of keys and values of an int8 cache, if any, and the two results.
    """
    *scale_refs, out_ref, weight_ref = refs
    side, H = q_ref.shape
    num_slots = k_ref.shape[3]
    head, x = pl.program_id(1), pl.program_id(2)
    first = jax.lax.div(x, splits) * side
    row, start, count = place_ref[0], place_ref[1], place_ref[2]
    # Number of slots that the queries see, and the blocks that this program reads.
    end = jnp.minimum(jax.lax.div(first + side - 1, group) + 1, count)
    seen = jnp.where(jax.lax.div(first, group) < count, start + end, 0)
    blocks = jax.lax.div(seen + block - 1, block)
    share = jax.lax.div(blocks + splits - 1, splits)
    begin = jax.lax.rem(x, splits) * share
    position_Q = start + jax.lax.div(first + jnp.arange(side), jnp.full(side, group))
    q_QH = q_ref[...]

    def add_block(j, carry):
        max_Q, sum_Q, out_QH = carry
        # The last block is moved left to stay inside the cache; slots of earlier blocks are masked.
        at = jnp.minimum(j * block, num_slots - block)
        slots = (layer_ref[0], row, head, pl.ds(at, block))
        k_SH, v_SH = (ref[slots].astype(q_QH.dtype) for ref in (k_ref, v_ref))
        scores_QS = jnp.dot(q_QH, k_SH.T, preferred_element_type=jnp.float32)
        if scale_refs:
            scores_QS *= scale_refs[0][slots][None]
        slot_S = at + jnp.arange(block)
        mask_QS = (slot_S[None] <= position_Q[:, None]) & (slot_S >= j * block)[None]
        scores_QS = jnp.where(mask_QS, scores_QS, _MASKED)
        new_max_Q = jnp.maximum(max_Q, jnp.max(scores_QS, axis=1))
        scale_Q = jnp.exp(max_Q - new_max_Q)
        weights_QS = jnp.exp(scores_QS - new_max_Q[:, None])
        sum_Q = sum_Q * scale_Q + jnp.sum(weights_QS, axis=1)
        if scale_refs:
            weights_QS *= scale_refs[1][slots][None]
        mixed_QH = jnp.dot(weights_QS.astype(v_SH.dtype), v_SH, preferred_element_type=jnp.float32)
        return new_max_Q, sum_Q, out_QH * scale_Q[:, None] + mixed_QH

    zeros_Q = jnp.zeros(side, jnp.float32)
    carry = (zeros_Q + _MASKED, zeros_Q, jnp.zeros((side, H), jnp.float32))
    end_block = jnp.minimum(begin + share, blocks)
    max_Q, sum_Q, out_QH = jax.lax.fori_loop(begin, end_block, add_block, carry)
    sum_Q = jnp.where(sum_Q == 0, 1.0, sum_Q)  # 0 marks a program without slots
    out_ref[...] = (out_QH / sum_Q[:, None]).astype(out_ref.dtype)
    weight_ref[...] = max_Q + jnp.log(sum_Q)


def _combine(out_nKXQH: jax.Array, weight_nKXQ: jax.Array) -> jax.Array:
    """Returns the means over the parts X, weighted by the logarithms of their sums."""
    if out_nKXQH.shape[2] == 1:
        return out_nKXQH[:, :, 0]
    share_nKXQ = jax.nn.softmax(weight_nKXQ, axis=2)
    return jnp.sum(out_nKXQH * share_nKXQ[..., None], axis=2)
