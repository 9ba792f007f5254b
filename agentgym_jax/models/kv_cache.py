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
from agentgym_jax.models.int8 import quantize_array

CACHE_AXES = ("layers", "batch", "act_kv_heads", "length", "act_head")


@flax.struct.dataclass
class KVCache:
    """Cache in which slot s of a row holds the key and value of the token at position s.

    Slots beyond the length of a sequence are undefined. On CPU, bfloat16 is stored as its bits
    (models/bfloat16_bits.py).

    Attributes:
      k_LBKSH: Rotated keys.
      v_LBKSH: Values.
      scales: Scales of int8 keys and of int8 values, float32 [L, B, K, S]; None for other types.
    """

    k_LBKSH: jax.Array
    v_LBKSH: jax.Array
    scales: tuple[jax.Array, jax.Array] | None = None

    @classmethod
    def abstract(
        cls,
        config: DecoderConfig,
        rows: int,
        length: int,
        dtype: jax.typing.DTypeLike,
        layout: Layout | None = None,
    ) -> "KVCache":
        """Returns the shapes, types and shardings of a cache whose keys have the type `dtype`."""

        def array(shape, dtype):
            axes = CACHE_AXES[: len(shape)]
            sharding = None if layout is None else layout.sharding(axes, shape)
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

        slots = (config.num_full_layers, rows, config.num_kv_heads, length)
        one, scale = array((*slots, config.head_size), dtype), array(slots, jnp.float32)
        return cls(one, one, (scale, scale) if jnp.dtype(dtype) == jnp.int8 else None)

    @classmethod
    def create(
        cls,
        config: DecoderConfig,
        rows: int,
        length: int,
        dtype: jax.typing.DTypeLike,
        layout: Layout | None = None,
    ) -> "KVCache":
        """Creates a cache of zeros on the devices of the layout; `dtype` is `Policy.cache_dtype`.

        Its program compiles once per shape.
        """
        shapes = cls.abstract(config, rows, length, choose_cache_dtype(dtype), layout)
        shardings = None if layout is None else jax.tree.map(lambda x: x.sharding, shapes)
        return jax.jit(_zeros, static_argnums=0, out_shardings=shardings)(shapes)

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

        def put(old, new):
            if old.dtype == jnp.uint16:
                new = to_bits(new.astype(jnp.bfloat16))
            new = new.astype(old.dtype)
            return old.at[layer, rows_n11, heads_K, slots_nT1].set(new, mode="drop")

        return jax.tree.map(put, self, self.stored(k_nTKH, v_nTKH))

    def stored(self, k_nTKH: jax.Array, v_nTKH: jax.Array) -> "KVCache":
        """Returns keys and values in the form of this cache, with the axes of the arguments."""
        if self.scales is None:
            return KVCache(k_nTKH, v_nTKH)
        (k, k_scale), (v, v_scale) = (quantize_array(x, (3,)) for x in (k_nTKH, v_nTKH))
        return KVCache(k, v, (k_scale, v_scale))


def _zeros(shapes: KVCache) -> KVCache:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


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

    def copy_slots(x):
        copy = functools.partial(_copy_slots, length=length)
        if layout is not None:
            slots = layout.sharding(CACHE_AXES[: x.ndim], x.shape).spec
            lines = layout.sharding(CACHE_AXES[1:2], (cache.rows,)).spec
            copy = jax.shard_map(
                copy,
                mesh=layout.mesh,
                in_specs=(slots, lines, lines, jax.sharding.PartitionSpec()),
                out_specs=slots,
                check_vma=False,
            )
        return copy(x, source_n, target_n, jnp.asarray(start))

    def copy_part(part):
        if isinstance(part, KVCache):
            return jax.tree.map(copy_slots, part)
        return part.at[:, target_n].set(part[:, source_n])

    return jax.tree.map(copy_part, cache, is_leaf=lambda part: isinstance(part, KVCache))


def _copy_slots(
    x: jax.Array, source_n: jax.Array, target_n: jax.Array, start: jax.Array, *, length: int
) -> jax.Array:
    """Copies slots of rows of one device, row after row and in place; x is [L, B, K, S, ...]."""
    L, B, K, _, *rest = x.shape
    zeros = (0,) * len(rest)

    def copy_row(i, x):
        source, target = source_n[i] % B, target_n[i] % B
        part = jax.lax.dynamic_slice(x, (0, source, 0, start, *zeros), (L, 1, K, length, *rest))
        return jax.lax.dynamic_update_slice(x, part, (0, target, 0, start, *zeros))

    return jax.lax.fori_loop(0, len(source_n), copy_row, x)
