"""Attention on TPU: kernels on the rows and heads of each device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.kernels import packed_attention, slot_attention
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.sharding import Layout


@dataclasses.dataclass(frozen=True)
class TPUBackend(DecodeBackend):
    """Decode backend whose cache is read and written in place.

    On several devices, line i of a call must continue a row of the device that holds line i.

    Attributes:
      layout: Layout of the sampler; None on one device.
      interpret: True to run the kernels without a TPU, for tests.
    """

    layout: Layout | None = None
    interpret: bool = False

    def update_cache(
        self, cache, layer, q_nTNH, k_nTKH, v_nTKH, row_n, positions_nT, *, is_in_order
    ):
        """Writes new tokens of a layer to the cache; returns their attention and the new cache."""
        if cache.length % min(slot_attention.BLOCK, cache.length):
            return super().update_cache(
                cache, layer, q_nTNH, k_nTKH, v_nTKH, row_n, positions_nT, is_in_order=is_in_order
            )
        local = functools.partial(_update_local, is_in_order=is_in_order, interpret=self.interpret)
        if self.layout is not None:
            rows, heads = _axes(self.layout, q_nTNH.shape[2], k_nTKH.shape[2])
            tokens = PartitionSpec(rows, None, heads)
            slots = PartitionSpec(None, rows, heads)
            lines = PartitionSpec(rows)
            local = jax.shard_map(
                local,
                mesh=self.layout.mesh,
                in_specs=(PartitionSpec(), tokens, tokens, tokens, slots, slots, lines, lines),
                out_specs=(tokens, slots, slots),
                check_vma=False,
            )
        out_nTNH, k_LBKSH, v_LBKSH = local(
            jnp.asarray(layer),
            q_nTNH,
            k_nTKH,
            v_nTKH,
            cache.k_LBKSH,
            cache.v_LBKSH,
            self._local_rows(row_n, cache.rows),
            positions_nT,
        )
        return out_nTNH, KVCache(k_LBKSH, v_LBKSH)

    def _local_rows(self, row_n: jax.Array, num_rows: int) -> jax.Array:
        """Returns the number of each row on its device."""
        shards = 1 if self.layout is None else self.layout.shards("batch")
        return row_n % (num_rows // shards)


def _update_local(
    layer, q_nTNH, k_nTKH, v_nTKH, k_LBKSH, v_LBKSH, row_n, positions_nT, *, is_in_order, interpret
):
    """Updates the rows and heads of one device."""
    S = k_LBKSH.shape[3]
    start_n = positions_nT[:, 0]
    count_n = jnp.sum(positions_nT < S, axis=1)
    if is_in_order and positions_nT.shape[1] == 1:
        new = (k_nTKH[:, 0], v_nTKH[:, 0])
        k_LBKSH, v_LBKSH = slot_attention.write_tokens(
            k_LBKSH, v_LBKSH, *new, layer, start_n, interpret=interpret
        )
    else:
        line = (layer, row_n, start_n, count_n)
        k_LBKSH = slot_attention.write_lines(k_LBKSH, k_nTKH, *line)
        v_LBKSH = slot_attention.write_lines(v_LBKSH, v_nTKH, *line)
    out_nTNH = slot_attention.attend_slots(
        q_nTNH, k_LBKSH, v_LBKSH, layer, row_n, start_n, count_n, interpret=interpret
    )
    return out_nTNH, k_LBKSH, v_LBKSH


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
    if layout is not None:
        rows, heads = _axes(layout, q_BTNH.shape[2], k_BTKH.shape[2])
        tokens = PartitionSpec(rows, None, heads)
        attend = jax.shard_map(
            attend,
            mesh=layout.mesh,
            in_specs=(tokens, tokens, tokens, PartitionSpec(rows)),
            out_specs=tokens,
            check_vma=False,
        )
    return attend(q_BTNH, k_BTKH, v_BTKH, segment_ids_BT)


def _axes(layout: Layout, num_heads: int, num_kv_heads: int):
    """Returns the mesh axes of rows and of heads; heads stay whole if the mesh does not divide
    them.
    """
    shards = layout.shards("act_kv_heads")
    is_divided = num_kv_heads % shards == 0 and num_heads % shards == 0
    return layout.rules["batch"], layout.rules["act_kv_heads"] if is_divided else None
