"""Keys and values of the tokens seen so far: one row an episode, one slot a position."""

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.sharding import Layout

CACHE_AXES = ("layers", "batch", "length", "act_kv_heads", "act_head")


@flax.struct.dataclass
class KVCache:
    """Slot s of a row holds the token at position s; slots beyond the live length are garbage."""

    k_LBSKH: jax.Array
    v_LBSKH: jax.Array

    @classmethod
    def create(
        cls,
        config: DecoderConfig,
        rows: int,
        length: int,
        dtype: jax.typing.DTypeLike,
        layout: Layout | None = None,
    ) -> "KVCache":
        """Cache of zeros, made in place on the devices of the layout.

        Args:
          config: decides L, K and H.
          rows: B.
          length: S, in tokens.
          dtype: type of keys and values; the compute type of the policy that fills it.
          layout: None for one device.
        """
        shape = (config.num_layers, rows, length, config.num_kv_heads, config.head_size)
        sharding = None if layout is None else layout.sharding(CACHE_AXES, shape)

        def zeros():
            return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

        return jax.jit(zeros, out_shardings=sharding)()

    @property
    def rows(self) -> int:
        """B."""
        return self.k_LBSKH.shape[1]

    @property
    def length(self) -> int:
        """S, in tokens."""
        return self.k_LBSKH.shape[2]

    def write(
        self, layer: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, positions_BT: jax.Array
    ) -> "KVCache":
        """Writes new tokens of one layer at their positions; those outside [0, S) are dropped."""
        rows_B1 = jnp.arange(self.rows)[:, None]
        # A negative position would count from the end.
        slots_BT = jnp.where(positions_BT < 0, self.length, positions_BT)

        def put(cache_LBSKH, new_BTKH):
            new_BTKH = new_BTKH.astype(cache_LBSKH.dtype)
            return cache_LBSKH.at[layer, rows_B1, slots_BT].set(new_BTKH, mode="drop")

        return KVCache(put(self.k_LBSKH, k_BTKH), put(self.v_LBSKH, v_BTKH))


def copy_prefix(cache: KVCache, source_B: jax.Array, length: int | jax.Array) -> KVCache:
    """Row b takes slots [0, length) of row source_B[b]; source_B[b] == b keeps the row.

    Rows that share a prompt are filled once and copied. `length` may be traced.
    """
    take_S = jnp.arange(cache.length) < length

    def copy(x_LBSKH):
        return jnp.where(take_S[None, None, :, None, None], x_LBSKH[:, source_B], x_LBSKH)

    return jax.tree.map(copy, cache)


def gather_rows(cache: KVCache, rows_n: jax.Array) -> KVCache:
    """Cache of some rows; an index of B stands for no row and gives zeros."""
    return jax.tree.map(lambda x: x.at[:, rows_n].get(mode="fill", fill_value=0), cache)


def scatter_rows(cache: KVCache, part: KVCache, rows_n: jax.Array) -> KVCache:
    """Puts the rows of `part` back; an index of B is dropped."""
    return jax.tree.map(lambda x, y: x.at[:, rows_n].set(y, mode="drop"), cache, part)
