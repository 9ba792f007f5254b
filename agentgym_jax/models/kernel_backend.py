"""Attention kernels on the rows and heads of each device; the common part of TPU and GPU."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.kv_cache import KVCache


@dataclasses.dataclass(frozen=True)
class KernelBackend(DecodeBackend):
    """Decode backend whose cache is read and written in place.

    On several devices, line i of a call must continue a row of the device that holds line i.

    Attributes:
      layout: Layout of the sampler; None on one device.
      interpret: True to run the kernels on any machine, for tests.
    """

    layout: Layout | None = None
    interpret: bool = False

    def supports_cache(self, cache: KVCache) -> bool:
        """Returns True if the kernels can use this cache; others use plain JAX."""
        raise NotImplementedError

    def update_local(
        self, layer, q_nTNH, k_nTKH, v_nTKH, cache, row_n, positions_nT, *, is_in_order
    ):
        """Does `update_cache` on the rows and heads of one device.

        `row_n` is a row of this device; a line without tokens may name any row.

        Returns:
          Attention, and the new cache.
        """
        raise NotImplementedError

    def update_cache(
        self, cache, layer, q_nTNH, k_nTKH, v_nTKH, row_n, positions_nT, *, is_in_order
    ):
        """Writes new tokens of a layer to the cache; returns their attention and the new cache."""
        if not self.supports_cache(cache):
            return super().update_cache(
                cache, layer, q_nTNH, k_nTKH, v_nTKH, row_n, positions_nT, is_in_order=is_in_order
            )
        local = functools.partial(self.update_local, is_in_order=is_in_order)
        shards = 1
        if self.layout is not None:
            shards = self.layout.shards("batch")
            rows, heads = _axes(self.layout, q_nTNH.shape[2], k_nTKH.shape[2])
            tokens = PartitionSpec(rows, None, heads)
            slots = PartitionSpec(None, rows, heads)
            lines = PartitionSpec(rows)
            local = jax.shard_map(
                local,
                mesh=self.layout.mesh,
                in_specs=(PartitionSpec(), tokens, tokens, tokens, slots, lines, lines),
                out_specs=(tokens, slots),
                check_vma=False,
            )
        row_n = row_n % (cache.rows // shards)
        return local(jnp.asarray(layer), q_nTNH, k_nTKH, v_nTKH, cache, row_n, positions_nT)


def attend_rows(
    layout: Layout | None,
    attend: Callable[..., jax.Array],
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    segment_ids_BT: jax.Array,
) -> jax.Array:
    """Computes attention of packed rows with a kernel for the rows and heads of one device."""
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
