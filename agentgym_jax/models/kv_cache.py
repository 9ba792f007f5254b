"""Keys and values of earlier tokens: one row per episode, one slot per position."""

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.bfloat16_bits import to_bits
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.decode_backend import choose_cache_dtype

CACHE_AXES = ("layers", "batch", "act_kv_heads", "length", "act_head")


@flax.struct.dataclass
class KVCache:
    """Cache in which slot s of a row holds the key and value of the token at position s.

    Slots beyond the length of a sequence are undefined. On CPU, bfloat16 is stored as its bits
    (models/bfloat16_bits.py).
    """

    k_LBKSH: jax.Array
    v_LBKSH: jax.Array

    @classmethod
    def create(
        cls,
        config: DecoderConfig,
        rows: int,
        length: int,
        dtype: jax.typing.DTypeLike,
        layout: Layout | None = None,
    ) -> "KVCache":
        """Creates a cache of zeros on the devices of the layout; `dtype` is the policy's type.

        Its program compiles once per shape.
        """
        shape = (config.num_full_layers, rows, config.num_kv_heads, length, config.head_size)
        sharding = None if layout is None else layout.sharding(CACHE_AXES, shape)
        dtype = jnp.dtype(choose_cache_dtype(dtype))
        return jax.jit(_zeros, static_argnums=(0, 1), out_shardings=sharding)(shape, dtype)

    @property
    def rows(self) -> int:
        """Number of rows (B)."""
        return self.k_LBKSH.shape[1]

    @property
    def length(self) -> int:
        """Slots per row (S), in tokens."""
        return self.k_LBKSH.shape[3]

    def write(self, layer, k_nTKH, v_nTKH, row_n, positions_nT) -> "KVCache":
        """Writes keys and values of one layer into the slots `positions_nT` of the rows `row_n`.

        Tokens are dropped if their row is outside [0, B) or their position is outside [0, S).
        """
        # JAX counts negative indices from the end; the replacements are indices that are dropped.
        slots_nT1 = jnp.where(positions_nT < 0, self.length, positions_nT)[:, :, None]
        rows_n11 = jnp.where(row_n < 0, self.rows, row_n)[:, None, None]
        heads_K = jnp.arange(self.k_LBKSH.shape[2])

        def put(cache_LBKSH, new_nTKH):
            if cache_LBKSH.dtype == jnp.uint16:
                new_nTKH = to_bits(new_nTKH.astype(jnp.bfloat16))
            new_nTKH = new_nTKH.astype(cache_LBKSH.dtype)
            return cache_LBKSH.at[layer, rows_n11, heads_K, slots_nT1].set(new_nTKH, mode="drop")

        return KVCache(put(self.k_LBKSH, k_nTKH), put(self.v_LBKSH, v_nTKH))


def _zeros(shape: tuple[int, ...], dtype: jnp.dtype) -> KVCache:
    return KVCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def copy_rows(
    cache: Any,
    source_n: jax.Array,
    target_n: jax.Array,
    start: jax.Array | int = 0,
    *,
    length: int | None = None,
    layout: Layout | None = None,
) -> Any:
    """Copies row source_n[i] to row target_n[i], one after the other; a target of B skips the copy.

    Of keys and values, the `length` slots from slot `start` are copied (by default all); a window
    beyond the end is moved back to the end. Other arrays of a `HybridCache` are copied whole. With a
    layout, line i of the arguments and its two rows must be on the same device.
    """
    length = cache.length if length is None else min(length, cache.length)
    # A skipped copy copies the source to itself.
    target_n = jnp.where(target_n < cache.rows, target_n, source_n)
    copy = functools.partial(_copy_slots, length=length)
    if layout is not None:
        slots = layout.sharding(CACHE_AXES, cache.k_LBKSH.shape).spec
        lines = layout.sharding(CACHE_AXES[1:2], (cache.rows,)).spec
        copy = jax.shard_map(
            copy,
            mesh=layout.mesh,
            in_specs=(slots, lines, lines, jax.sharding.PartitionSpec()),
            out_specs=slots,
            check_vma=False,
        )

    def copy_part(part):
        if isinstance(part, KVCache):
            return jax.tree.map(lambda x: copy(x, source_n, target_n, jnp.asarray(start)), part)
        return part.at[:, target_n].set(part[:, source_n])

    return jax.tree.map(copy_part, cache, is_leaf=lambda part: isinstance(part, KVCache))


def _copy_slots(
    x_LBKSH: jax.Array, source_n: jax.Array, target_n: jax.Array, start: jax.Array, *, length: int
) -> jax.Array:
    """Copies slots of rows of one device, row after row and in place."""
    L, B, K, _, H = x_LBKSH.shape

    def copy_row(i, x_LBKSH):
        source, target = source_n[i] % B, target_n[i] % B
        part = jax.lax.dynamic_slice(x_LBKSH, (0, source, 0, start, 0), (L, 1, K, length, H))
        return jax.lax.dynamic_update_slice(x_LBKSH, part, (0, target, 0, start, 0))

    return jax.lax.fori_loop(0, len(source_n), copy_row, x_LBKSH)
