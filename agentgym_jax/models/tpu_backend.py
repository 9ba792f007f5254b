"""Attention on TPU: kernels on the rows and heads of each device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.kernel_backend import KernelBackend, attend_rows
from agentgym_jax.models.kernels import packed_attention, slot_attention
from agentgym_jax.models.kv_cache import KVCache


@dataclasses.dataclass(frozen=True)
class TPUBackend(KernelBackend):
    """Kernel backend for TPU."""

    def supports_cache(self, cache):
        """Returns True if blocks divide the rows of the cache; an int8 cache is refused."""
        if cache.scales is not None:
            raise ValueError(
                "config.model.cache_dtype='int8' has no kernel for TPU yet; set 'computed'"
            )
        return cache.length % min(slot_attention.BLOCK, cache.length) == 0

    def update_local(
        self, layer, q_nTNH, k_nTKH, v_nTKH, cache, row_n, positions_nT, *, is_in_order
    ):
        """Updates the rows and heads of one device."""
        k_LBKSH, v_LBKSH = cache.k_LBKSH, cache.v_LBKSH
        S = cache.length
        start_n = positions_nT[:, 0]
        count_n = jnp.sum(positions_nT < S, axis=1)
        if is_in_order and positions_nT.shape[1] == 1:
            new = (k_nTKH[:, 0], v_nTKH[:, 0])
            k_LBKSH, v_LBKSH = slot_attention.write_tokens(
                k_LBKSH, v_LBKSH, *new, layer, start_n, interpret=self.interpret
            )
        else:
            line = (layer, row_n, start_n, count_n)
            k_LBKSH = slot_attention.write_lines(k_LBKSH, k_nTKH, *line)
            v_LBKSH = slot_attention.write_lines(v_LBKSH, v_nTKH, *line)
        out_nTNH = slot_attention.attend_slots(
            q_nTNH, k_LBKSH, v_LBKSH, layer, row_n, start_n, count_n, interpret=self.interpret
        )
        return out_nTNH, KVCache(k_LBKSH, v_LBKSH)


def attend_packed(
    layout: Layout | None,
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    segment_ids_BT: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Computes `attention.attend_segments` with the kernel where the row length allows it."""
    if not packed_attention.supports_row(q_BTNH.shape[1]):
        return attend_segments(q_BTNH, k_BTKH, v_BTKH, segment_ids_BT)
    attend = functools.partial(packed_attention.attend_packed, interpret=interpret)
    return attend_rows(layout, attend, q_BTNH, k_BTKH, v_BTKH, segment_ids_BT)
