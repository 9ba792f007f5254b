"""Keys and values of the tokens seen so far: one row an episode, one slot a position."""

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.bits import to_bits
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.sharding import Layout

CACHE_AXES = ("layers", "batch", "act_kv_heads", "length", "act_head")


@flax.struct.dataclass
class KVCache:
    """Slot s of a row holds the token at position s; slots beyond the live length are garbage.

    The slots of a head lie together, as the products of attention want them. On CPU bfloat16 is
    stored as its bits (models/bits.py).
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
        """Cache of zeros, made in place on the devices of the layout.

        Args:
          config: decides L, K and H.
          rows: B.
          length: S, in tokens.
          dtype: type of keys and values; the compute type of the policy that fills it.
          layout: None for one device.
        """
        shape = (config.num_layers, rows, config.num_kv_heads, length, config.head_size)
        sharding = None if layout is None else layout.sharding(CACHE_AXES, shape)

        is_bits = jnp.dtype(dtype) == jnp.bfloat16 and jax.default_backend() == "cpu"
        dtype = jnp.uint16 if is_bits else dtype

        def zeros():
            return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

        return jax.jit(zeros, out_shardings=sharding)()

    @property
    def rows(self) -> int:
        """B."""
        return self.k_LBKSH.shape[1]

    @property
    def length(self) -> int:
        """S, in tokens."""
        return self.k_LBKSH.shape[3]

    def write(
        self,
        layer: jax.Array,
        k_nTKH: jax.Array,
        v_nTKH: jax.Array,
        row_n: jax.Array,
        positions_nT: jax.Array,
    ) -> "KVCache":
        """Writes new tokens of one layer into cache row `row_n` at their positions.

        Tokens with a row outside [0, B) or a position outside [0, S) are dropped. The same row may
        be given several times, with different positions.
        """
        # Negative numbers would count from the end.
        slots_nT1 = jnp.where(positions_nT < 0, self.length, positions_nT)[:, :, None]
        rows_n11 = jnp.where(row_n < 0, self.rows, row_n)[:, None, None]
        heads_K = jnp.arange(self.k_LBKSH.shape[2])

        def put(cache_LBKSH, new_nTKH):
            if cache_LBKSH.dtype == jnp.uint16:
                new_nTKH = to_bits(new_nTKH.astype(jnp.bfloat16))
            new_nTKH = new_nTKH.astype(cache_LBKSH.dtype)
            return cache_LBKSH.at[layer, rows_n11, heads_K, slots_nT1].set(new_nTKH, mode="drop")

        return KVCache(put(self.k_LBKSH, k_nTKH), put(self.v_LBKSH, v_nTKH))


def copy_rows(cache: KVCache, source_n: jax.Array, target_n: jax.Array) -> KVCache:
    """Row target_n[i] takes all slots of row source_n[i]; a target of B stands for no copy."""
    return jax.tree.map(lambda x: x.at[:, target_n].set(x[:, source_n], mode="drop"), cache)
