"""Causal attention inside the segments of packed rows on GPU, with Triton kernels.

JAX's own kernel (`pallas.ops.gpu.attention.mha`) rounds a sum of its backward pass to bfloat16, which
makes the error of gradients up to four times as large, and it reads the keys of all earlier segments.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

_QUERIES = 128  # queries per block of the forward pass; row lengths are a multiple of them
_MASKED = -1e30


def supports_row(length: int, head_size: int) -> bool:
    """Returns True if rows of this many tokens can use the kernel."""
    return length % _QUERIES == 0 and head_size >= 16 and head_size & (head_size - 1) == 0


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def attend_packed(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    segment_ids_BT: jax.Array,
    interpret: bool = False,
) -> jax.Array:
    """Computes the same as `attention.attend_segments` on the rows and heads of one device.

    Blocks that no query sees are skipped. Scores exist for one block at a time, in the backward
    pass too, which recomputes them with each query's stored normaliser (arXiv:2205.14135). Arguments
    and result are those of `packed_attention.attend_packed`; segments are contiguous.
    """
    return _attend_forward(q_BTNH, k_BTKH, v_BTKH, segment_ids_BT, interpret)[0]


def _attend_forward(q_BTNH, k_BTKH, v_BTKH, ids_BT, interpret):
    B, T, N, H = q_BTNH.shape
    ids_BT = ids_BT.astype(jnp.int32)
    side = _side(q_BTNH.dtype)
    block = min(2 * side, _QUERIES)
    heads = _Specs(T, H, N // k_BTKH.shape[2])
    start_BT, _ = _bounds(ids_BT)
    out_BTNH, normaliser_BNT = _call(
        functools.partial(_forward, side=side, scale=H**-0.5),
        "attend_packed",
        (T // block, B, N),
        [heads.bound, heads.ids, heads.query_block(block), heads.keys, heads.keys],
        [heads.query_block(block), heads.number_block(block)],
        [q_BTNH, jax.ShapeDtypeStruct((B, N, T), jnp.float32)],
        flops=_flops(2, q_BTNH),
        interpret=interpret,
    )(start_BT[:, ::block] // side, ids_BT, q_BTNH, k_BTKH, v_BTKH)
    return out_BTNH, (q_BTNH, k_BTKH, v_BTKH, ids_BT, out_BTNH, normaliser_BNT)


def _attend_backward(interpret, saved, d_out_BTNH):
    q_BTNH, k_BTKH, v_BTKH, ids_BT, out_BTNH, normaliser_BNT = saved
    B, T, N, H = q_BTNH.shape
    K = k_BTKH.shape[2]
    heads, side = _Specs(T, H, N // K), _side(q_BTNH.dtype)
    products_BTNH = d_out_BTNH.astype(jnp.float32) * out_BTNH.astype(jnp.float32)
    mean_BNT = jnp.sum(products_BTNH, axis=-1).swapaxes(1, 2)
    start_BT, stop_BT = _bounds(ids_BT)
    kernel = functools.partial(_call, interpret=interpret)
    block, numbers = heads.query_block(side), heads.number_block(side)
    arrays = (ids_BT, q_BTNH, k_BTKH, v_BTKH, d_out_BTNH, normaliser_BNT, mean_BNT)
    (d_q_BTNH,) = kernel(
        functools.partial(_backward_queries, side=side, scale=H**-0.5),
        "attend_packed_queries",
        (T // side, B, N),
        [heads.bound, heads.ids, block, heads.keys, heads.keys, block, numbers, numbers],
        [block],
        [q_BTNH],
        flops=_flops(3, q_BTNH),
    )(start_BT[:, ::side] // side, *arrays)
    own, group, numbers = heads.key_block(side), heads.group_queries, heads.group_numbers
    d_k_BTKH, d_v_BTKH = kernel(
        functools.partial(_backward_keys, side=side, scale=H**-0.5),
        "attend_packed_keys",
        (T // side, B, K),
        [heads.bound, heads.ids, group, own, own, group, numbers, numbers],
        [own, own],
        [k_BTKH, v_BTKH],
        flops=_flops(4, q_BTNH),
    )((stop_BT[:, side - 1 :: side] + side - 1) // side, *arrays)
    return d_q_BTNH, d_k_BTKH, d_v_BTKH, None


attend_packed.defvjp(_attend_forward, _attend_backward)


def _side(dtype: jax.typing.DTypeLike) -> int:
    """Returns the side of a block whose sums fit the registers, with heads of up to 128."""
    return 64 if jnp.dtype(dtype).itemsize == 2 else 32


def _bounds(ids_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the first token of each token's segment, and the token after its last one."""
    T = ids_BT.shape[1]
    place_1T = jnp.arange(T)[None]
    is_first_BT = jnp.diff(ids_BT, axis=1, prepend=ids_BT[:, :1] - 1) != 0
    is_last_BT = jnp.diff(ids_BT, axis=1, append=ids_BT[:, -1:] - 1) != 0
    start_BT = jax.lax.cummax(jnp.where(is_first_BT, place_1T, 0), axis=1)
    stop_BT = jax.lax.cummin(jnp.where(is_last_BT, place_1T + 1, T), axis=1, reverse=True)
    return start_BT, stop_BT


class _Specs:
    """Blocks of the arrays that program (block, row, head) sees; G query heads share a key head."""

    def __init__(self, T: int, H: int, G: int):
        self._sizes = T, H, G
        self.bound = pl.BlockSpec((None, 1), lambda i, b, h: (b, i))
        self.ids = pl.BlockSpec((None, T), lambda i, b, h: (b, 0))
        self.keys = pl.BlockSpec((None, T, None, H), lambda i, b, h: (b, 0, jax.lax.div(h, G), 0))
        self.group_queries = pl.BlockSpec((None, T, G, H), lambda i, b, h: (b, 0, h, 0))
        self.group_numbers = pl.BlockSpec((None, G, T), lambda i, b, h: (b, h, 0))

    def query_block(self, block: int) -> pl.BlockSpec:
        """Returns the spec of a block of queries of one head."""
        return pl.BlockSpec((None, block, None, self._sizes[1]), lambda i, b, h: (b, i, h, 0))

    key_block = query_block

    def number_block(self, block: int) -> pl.BlockSpec:
        """Returns the spec of one number per query of a block."""
        return pl.BlockSpec((None, None, block), lambda i, b, h: (b, h, i))


def _call(kernel, name, grid, in_specs, out_specs, out_shape, *, flops, interpret):
    """Returns a kernel as a function of its arrays."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in out_shape],
        compiler_params=plgpu.CompilerParams(
            num_warps=4 if out_shape[0].shape[-1] <= 64 else 8, num_stages=2
        ),
        cost_estimate=pl.CostEstimate(flops=flops, transcendentals=0, bytes_accessed=0),
        name=name,
        interpret=interpret,
    )


def _flops(products: int, q_BTNH: jax.Array) -> int:
    """Returns the FLOPs of matrix products over all visible pairs, in rows of one episode."""
    return products * q_BTNH.size * q_BTNH.shape[1]


def _forward(first_ref, ids_ref, q_ref, k_ref, v_ref, out_ref, normaliser_ref, *, side, scale):
    """Computes attention of a block of queries with a running softmax (arXiv:1805.02867)."""
    block, H = q_ref.shape
    at = pl.program_id(0) * block
    query_Q, ids_Q = at + jnp.arange(block), ids_ref[pl.ds(at, block)]
    q_QH = q_ref[...]

    def add_block(j, carry):
        max_Q, sum_Q, out_QH = carry
        keys = pl.ds(j * side, side)
        key_S, v_SH = j * side + jnp.arange(side), v_ref[keys, :]
        mask_QS = (ids_Q[:, None] == ids_ref[keys][None]) & (query_Q[:, None] >= key_S[None])
        scores_QS = jnp.where(mask_QS, _dot(q_QH, k_ref[keys, :].T) * scale, _MASKED)
        new_max_Q = jnp.maximum(max_Q, jnp.max(scores_QS, axis=1))
        weights_QS = jnp.exp(scores_QS - new_max_Q[:, None])
        old_Q = jnp.exp(max_Q - new_max_Q)
        out_QH = out_QH * old_Q[:, None] + _dot(weights_QS.astype(v_SH.dtype), v_SH)
        return new_max_Q, sum_Q * old_Q + jnp.sum(weights_QS, axis=1), out_QH

    zeros_Q = jnp.zeros(block, jnp.float32)
    carry = (zeros_Q + _MASKED, zeros_Q, jnp.zeros((block, H), jnp.float32))
    stop = jax.lax.div(at + block, side)
    max_Q, sum_Q, out_QH = jax.lax.fori_loop(first_ref[0], stop, add_block, carry)
    out_ref[...] = (out_QH / sum_Q[:, None]).astype(out_ref.dtype)
    normaliser_ref[...] = max_Q + jnp.log(sum_Q)


def _backward_queries(
    first_ref,
    ids_ref,
    q_ref,
    k_ref,
    v_ref,
    d_out_ref,
    normaliser_ref,
    mean_ref,
    d_q_ref,
    *,
    side,
    scale,
):
    """Computes the gradient of a block of queries."""
    i = pl.program_id(0)
    own = pl.ds(i * side, side)
    query_Q, ids_Q = i * side + jnp.arange(side), ids_ref[own]
    q_QH, d_out_QH = q_ref[...], d_out_ref[...]
    normaliser_Q, mean_Q = normaliser_ref[...], mean_ref[...]

    def add_block(j, d_q_QH):
        keys = pl.ds(j * side, side)
        key_S, k_SH = j * side + jnp.arange(side), k_ref[keys, :]
        mask_QS = (ids_Q[:, None] == ids_ref[keys][None]) & (query_Q[:, None] >= key_S[None])
        scores_QS = jnp.where(mask_QS, _dot(q_QH, k_SH.T) * scale, _MASKED)
        weights_QS = jnp.exp(scores_QS - normaliser_Q[:, None])
        d_scores_QS = weights_QS * (_dot(d_out_QH, v_ref[keys, :].T) - mean_Q[:, None])
        return d_q_QH + _dot(d_scores_QS.astype(k_SH.dtype), k_SH)

    zeros_QH = jnp.zeros(q_ref.shape, jnp.float32)
    d_q_QH = jax.lax.fori_loop(first_ref[0], i + 1, add_block, zeros_QH)
    d_q_ref[...] = (d_q_QH * scale).astype(d_q_ref.dtype)


def _backward_keys(
    stop_ref,
    ids_ref,
    q_ref,
    k_ref,
    v_ref,
    d_out_ref,
    normaliser_ref,
    mean_ref,
    d_k_ref,
    d_v_ref,
    *,
    side,
    scale,
):
    """Computes the gradients of a block of keys and of its values, over the heads of a group."""
    j = pl.program_id(0)
    key_S, ids_S = j * side + jnp.arange(side), ids_ref[pl.ds(j * side, side)]
    k_SH, v_SH = k_ref[...], v_ref[...]
    count = stop_ref[0] - j

    def add_block(x, carry):
        d_k_SH, d_v_SH = carry
        head, i = jax.lax.div(x, count), j + jax.lax.rem(x, count)
        queries = pl.ds(i * side, side)
        q_QH, d_out_QH = q_ref[queries, head, :], d_out_ref[queries, head, :]
        query_Q = i * side + jnp.arange(side)
        mask_SQ = (ids_S[:, None] == ids_ref[queries][None]) & (key_S[:, None] <= query_Q[None])
        scores_SQ = jnp.where(mask_SQ, _dot(k_SH, q_QH.T) * scale, _MASKED)
        weights_SQ = jnp.exp(scores_SQ - normaliser_ref[head, queries][None])
        d_v_SH += _dot(weights_SQ.astype(d_out_QH.dtype), d_out_QH)
        d_scores_SQ = weights_SQ * (_dot(v_SH, d_out_QH.T) - mean_ref[head, queries][None])
        return d_k_SH + _dot(d_scores_SQ.astype(q_QH.dtype), q_QH), d_v_SH

    zeros_SH = jnp.zeros(k_ref.shape, jnp.float32)
    steps = count * q_ref.shape[1]
    d_k_SH, d_v_SH = jax.lax.fori_loop(0, steps, add_block, (zeros_SH, zeros_SH))
    d_k_ref[...] = (d_k_SH * scale).astype(d_k_ref.dtype)
    d_v_ref[...] = d_v_SH.astype(d_v_ref.dtype)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)
