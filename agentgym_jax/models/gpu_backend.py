"""Attention on GPU: kernels on the rows and heads of each device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.kernel_backend import KernelBackend, attend_rows
from agentgym_jax.models.kernels import gpu_packed_attention, gpu_slot_attention


@dataclasses.dataclass(frozen=True)
class GPUBackend(KernelBackend):
    """Kernel backend for GPU. XLA's scatter writes the new tokens in place."""

    def supports_cache(self, cache):
        """Returns True if the kernel can use the length and the head size of the cache."""
        return gpu_slot_attention.supports(cache.length, cache.k_LBKSH.shape[4])

    def update_local(
        self, layer, q_nTNH, k_nTKH, v_nTKH, cache, row_n, positions_nT, *, is_in_order
    ):
        """Updates the rows and heads of one device."""
        del is_in_order
        cache = cache.write(layer, k_nTKH, v_nTKH, row_n, positions_nT)
        out_nTNH = gpu_slot_attention.attend_slots(
            q_nTNH,
            cache.k_LBKSH,
            cache.v_LBKSH,
            layer,
            row_n,
            positions_nT[:, 0],
            jnp.sum(positions_nT < cache.length, axis=1),
            scales=cache.scales,
            interpret=self.interpret,
        )
        return out_nTNH, cache


def attend_packed(
    layout: Layout | None,
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    segment_ids_BT: jax.Array,
    *,
    use_cudnn: bool = False,
    interpret: bool = False,
) -> jax.Array:
    """Computes `attention.attend_segments` with the kernel where the row length allows it.

    With `use_cudnn`, cuDNN computes rows that have one segment each. Their padding then sees the
    segment; a token of a segment never sees padding.
    """
    H = q_BTNH.shape[3]
    attend = attend_segments
    if gpu_packed_attention.supports_row(q_BTNH.shape[1], H):
        attend = functools.partial(gpu_packed_attention.attend_packed, interpret=interpret)
    if use_cudnn and H % 8 == 0 and H <= 128:
        attend = functools.partial(_attend_whole_rows, attend, interpret=interpret)
    elif attend is attend_segments:
        return attend_segments(q_BTNH, k_BTKH, v_BTKH, segment_ids_BT)
    return attend_rows(layout, attend, q_BTNH, k_BTKH, v_BTKH, segment_ids_BT)


def _attend_whole_rows(attend_others, q_BTNH, k_BTKH, v_BTKH, ids_BT, *, interpret):
    """Computes attention with cuDNN, which knows no segments, if no row has a second segment."""

    def attend_causal(q_BTNH, k_BTKH, v_BTKH, _):
        return jax.nn.dot_product_attention(
            q_BTNH, k_BTKH, v_BTKH, is_causal=True, implementation="xla" if interpret else "cudnn"
        )

    is_whole = jnp.all((ids_BT == ids_BT[:, :1]) | (ids_BT == 0))
    return jax.lax.cond(is_whole, attend_causal, attend_others, q_BTNH, k_BTKH, v_BTKH, ids_BT)
