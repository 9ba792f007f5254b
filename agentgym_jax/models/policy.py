"""Policy: the decoder as pure functions of a plain tree of weights."""

import dataclasses
import functools
from typing import Any

import jax
from flax import nnx

from agentgym_jax.models import split_layers
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.decoder import REMAT_POLICIES, Decoder
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.split_layers import SplitLayers
from agentgym_jax.sharding import Layout

Params = dict[str, Any]  # nested dicts of arrays, shapes as in `Policy.abstract_params()`

DTYPES = ("float32", "bfloat16")


def _split(params: Params) -> SplitLayers | None:
    """Layers that are split; None where they are stacked."""
    return params["layers"] if isinstance(params["layers"], SplitLayers) else None


@dataclasses.dataclass(frozen=True)
class Policy:
    """How to compute with the weights; holds none.

    Every method takes the weights first and may be called inside jit.

    Attributes:
      config: shape of the network.
      dtype: "float32" or "bfloat16", type of activations and matrix products. Norms, softmax
        and logits are float32 in both.
      remat: "none", "block" or "dots", what the backward pass computes again.
      layout: pins activations to a mesh; None for one device.
    """

    config: DecoderConfig
    dtype: str = "float32"
    remat: str = "none"
    layout: Layout | None = None

    def __post_init__(self):
        if self.dtype not in DTYPES:
            raise ValueError(f"Policy.dtype is {self.dtype!r}; it must be one of {DTYPES}")
        if self.remat not in REMAT_POLICIES:
            raise ValueError(
                f"Policy.remat is {self.remat!r}; it must be one of {tuple(REMAT_POLICIES)}"
            )

    def init(self, key: jax.Array) -> Params:
        """Random float32 weights: normal(0.02), output projections 0.02 / sqrt(2 L)."""
        return nnx.to_pure_dict(nnx.split(self._build(key))[1])

    def init_sharded(self, key: jax.Array, layout: Layout | None) -> Params:
        """`init`, each device making its own shards only. The values are those of `init`."""
        return jax.jit(self.init, out_shardings=self.param_shardings(layout))(key)

    def abstract_params(self) -> Params:
        """Shapes and types of the weights, as a tree of jax.ShapeDtypeStruct."""
        return nnx.to_pure_dict(self._skeleton[1])

    def logical_axes(self) -> Params:
        """Logical axis names of the weights, as a tree of tuples."""
        variables = self._skeleton[1]
        is_variable = lambda x: isinstance(x, nnx.Variable)
        axes = jax.tree.map(
            lambda v: v.get_metadata("out_sharding"), variables, is_leaf=is_variable
        )
        return nnx.to_pure_dict(axes)

    def param_shardings(self, layout: Layout | None) -> Params | None:
        """Shardings of the weights in a layout; None without one."""
        if layout is None:
            return None
        return layout.tree_shardings(self.logical_axes(), self.abstract_params())

    def hidden(
        self,
        params: Params,
        tokens_BT: jax.Array,
        positions_BT: jax.Array,
        segment_ids_BT: jax.Array,
    ) -> jax.Array:
        """Hidden states of packed rows after the final norm.

        Args:
          params: the weights.
          tokens_BT: int token ids.
          positions_BT: int, restart at 0 in every segment.
          segment_ids_BT: int; a token attends to earlier tokens of its own segment. 0 is padding.

        Returns:
          hidden_BTD in the compute type; index t knows tokens up to and including t.
        """
        return self._decoder(params).hidden(tokens_BT, positions_BT, segment_ids_BT)

    def hidden_cached(
        self,
        params: Params,
        tokens_nT: jax.Array,
        positions_nT: jax.Array,
        cache: KVCache,
        row_n: jax.Array | None = None,
    ) -> tuple[jax.Array, KVCache]:
        """Hidden states of new tokens that continue rows of a cache.

        Args:
          params: the weights.
          tokens_nT: int token ids.
          positions_nT: cache slot of each token. A token sees the slots of its row up to its own,
            those that this call writes included. Padding has position S (or more): not written,
            its result is meaningless.
          cache: donate it, then it is updated in place.
          row_n: cache row of each line of tokens; several lines may continue the same row. None:
            line b belongs to row b, and n = B.

        The weights may also be those of `split_layers`.

        Returns:
          hidden_nTD after the final norm, and the cache with the new tokens.
        """
        decoder = self._decoder(params)
        return decoder.hidden_cached(tokens_nT, positions_nT, cache, row_n, _split(params))

    def split_layers(self, params: Params, *, is_native: bool) -> Params:
        """The weights with `layers` in the form of models/split_layers.py."""
        return split_layers.split(params, self.config.num_layers, is_native=is_native)

    def stack_layers(self, params: Params) -> Params:
        """Undoes `split_layers`."""
        return split_layers.stack(params)

    def logits(self, params: Params, hidden: jax.Array) -> jax.Array:
        """Float32 next-token logits [..., V] of hidden states [..., D].

        The weights may also be those of `split_layers`, then without gradient.
        """
        layers = _split(params)
        is_native = layers is not None and layers.is_native
        return self._decoder(params).logits(hidden, is_native=is_native)

    def _build(self, key: jax.Array) -> Decoder:
        return Decoder(
            self.config,
            dtype=self.dtype,
            remat=self.remat,
            layout=self.layout,
            rngs=nnx.Rngs(params=key),
        )

    @functools.cached_property
    def _skeleton(self) -> tuple[Any, Any]:
        """Graph and abstract variables of the decoder."""
        return nnx.split(nnx.eval_shape(lambda: self._build(jax.random.key(0))))

    def _decoder(self, params: Params) -> Decoder:
        layers = _split(params)
        if layers is not None:  # the others have the structure of the first
            params = params | {"layers": layers.of[0]}
        expected = jax.tree.structure(self.abstract_params())
        found = jax.tree.structure(params)
        if found != expected:
            raise ValueError(
                f"Policy: the weights are a tree {found}, the config describes {expected}"
            )
        return nnx.merge(self._skeleton[0], params)
