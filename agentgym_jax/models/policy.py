"""Policy: the decoder as pure functions of a plain tree of weights."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from agentgym_jax.mesh.compiler_options import Compiled
from agentgym_jax.mesh.sharding import Layout, constrain, get_platform
from agentgym_jax.models import gpu_backend, int8, lora, tpu_backend
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.decode_backend import DecodeBackend, get_backend, look_up
from agentgym_jax.models.decoder import Block, Decoder, cast_kernels, rms_norm, rope_tables
from agentgym_jax.models.einsum import LAYER_SPECS, train_product
from agentgym_jax.models.hybrid import Cache, CachedMixers, HybridGroup, PackedMixers
from agentgym_jax.models.int8 import HEAD_SCALE, Int8Layers
from agentgym_jax.models.layer_scan import WithGradientSum, scan_layers
from agentgym_jax.models.lora import AdaptedLayers

Params = lora.Params  # with the shapes of `Policy.abstract_params()`

DTYPES = ("float32", "bfloat16")
KERNELS, CUDNN = "kernels", "cudnn"
ATTENTIONS = (KERNELS, CUDNN)

# Policies of `jax.checkpoint` for a layer; None stores all residuals for the backward pass.
REMAT_POLICIES: dict[str, Callable[..., bool] | None] = {
    "none": None,
    "block": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}

# Kernels of each platform; CPU has none.
_BACKENDS = {"tpu": tpu_backend.TPUBackend, "gpu": gpu_backend.GPUBackend}
_ATTEND_PACKED = {"tpu": tpu_backend.attend_packed, "gpu": gpu_backend.attend_packed}


@dataclasses.dataclass(frozen=True)
class Policy:
    """Decoder as pure functions of its weights, which may be called inside jit.

    Attributes:
      config: Shape of the decoder.
      dtype: Type of activations and matrix products: "float32" or "bfloat16". Norms and softmax are
        computed in float32, and logits are float32.
      remat: Key of REMAT_POLICIES: choice of the residuals that the backward pass recomputes.
      layout: Mesh over which activations are sharded; None for one device.
      is_int8: True if a sampler with this policy has int8 weights (models/int8.py).
      has_int8_cache: True if the keys and values of its cache are int8 (models/kv_cache.py).
      attention: Attention of packed rows on GPU: "kernels", or "cudnn" if no row has a second
        segment.
    """

    config: DecoderConfig
    dtype: str = "float32"
    remat: str = "none"
    layout: Layout | None = None
    is_int8: bool = False
    has_int8_cache: bool = False
    attention: str = KERNELS

    def __post_init__(self):
        if self.dtype not in DTYPES:
            raise ValueError(f"Policy.dtype is {self.dtype!r}; it must be one of {DTYPES}")
        if self.remat not in REMAT_POLICIES:
            raise ValueError(
                f"Policy.remat is {self.remat!r}; it must be one of {tuple(REMAT_POLICIES)}"
            )
        if self.config.hybrid is not None and self.layout is not None:
            raise ValueError(
                "Policy: a decoder with gated delta nets (Qwen3.5) runs on one device, but the "
                f"mesh has {self.layout.mesh.size}"
            )
        if self.config.hybrid is not None and (self.is_int8 or self.has_int8_cache):
            raise ValueError(
                "Policy: a decoder with gated delta nets (Qwen3.5) has no int8 weights and no int8 cache"
            )

    @property
    def cache_dtype(self) -> str:
        """Type of the keys and values of a cache."""
        return "int8" if self.has_int8_cache else self.dtype

    def init(self, key: jax.Array) -> Params:
        """Returns random float32 weights: normal(0.02), output projections 0.02 / sqrt(2 L)."""
        return nnx.to_pure_dict(nnx.split(self._build(nnx.Rngs(params=key)))[1])

    def init_sharded(self, key: jax.Array, layout: Layout | None) -> Params:
        """Returns the weights of `init`; each device computes only its shards."""
        return jax.jit(self.init, out_shardings=self.param_shardings(layout))(key)

    def abstract_params(self) -> Params:
        """Returns shapes and types of the weights, as a tree of jax.ShapeDtypeStruct."""
        return nnx.to_pure_dict(self._skeleton[1])

    def cast_params(self, params: Params) -> Params:
        """Returns the weights with all kernels and embeddings in the compute type.

        Results are those of the float32 weights, because every computation casts them. Norms and
        biases remain float32. Weights of a float32 policy are returned unchanged.
        """

        def cast(path, x):
            is_cast = path[-1].key in (*LAYER_SPECS, "embedding", "kernel")
            return x.astype(self.dtype) if is_cast else x

        return jax.tree.map_with_path(cast, params)

    def sampler_params(self, params: Params) -> Params:
        """Returns the weights that a sampler with this policy reads, given those of the learner.

        Adapters are merged, in float32. All weights get the compute type, or those of `int8.quantize`.
        """
        if not self.is_int8:
            return lora.merge(params, self.dtype)
        return int8.quantize(lora.merge(params, "float32"), self.dtype)

    def abstract_sampler_params(self, layout: Layout | None = None) -> Params:
        """Returns shapes, types and shardings of the result of `sampler_params` in a layout."""
        shapes = jax.eval_shape(self.sampler_params, self.abstract_params())
        if layout is None:
            return shapes
        axes = self.logical_axes()
        axes = int8.quantized_axes(axes) if self.is_int8 else axes
        return jax.tree.map(
            lambda x, sharding: x.update(sharding=sharding),
            shapes,
            layout.tree_shardings(axes, shapes),
        )

    @property
    def num_parameters(self) -> int:
        """Returns the number of weights, counting tied embeddings once."""
        return sum(x.size for x in jax.tree.leaves(self.abstract_params()))

    def logical_axes(self) -> Params:
        """Returns logical axis names of the weights, as a tree of tuples."""
        axes = jax.tree.map(
            lambda variable: variable.get_metadata("axes"),
            self._skeleton[1],
            is_leaf=lambda x: isinstance(x, nnx.Variable),
        )
        return nnx.to_pure_dict(axes)

    def param_shardings(self, layout: Layout | None) -> Params | None:
        """Returns the shardings of the weights in a layout; None without a layout."""
        if layout is None:
            return None
        return layout.tree_shardings(self.logical_axes(), self.abstract_params())

    def hidden(self, params: Params, tokens_BT, positions_BT, segment_ids_BT) -> jax.Array:
        """Returns hidden states after the final norm: [B, T, D] in the compute type.

        Index t depends on the tokens of its segment up to and including t.

        Args:
          params: Stacked weights, whose layers may be `WithGradientSum`, `AdaptedLayers` or
            `Int8Layers`.
          tokens_BT: Token ids.
          positions_BT: Positions, which restart at 0 in every segment.
          segment_ids_BT: Segment of each token; 0 is padding.
        """
        decoder, _ = self._merge(params)
        layers = params["layers"]
        x_BTD, rope = self._embed(decoder, params, tokens_BT, positions_BT)
        graph, stacked = nnx.split(decoder.layers)
        attend_rows: Callable[..., jax.Array] = attend_segments
        if get_platform() in _ATTEND_PACKED:
            attend_rows = functools.partial(_ATTEND_PACKED[get_platform()], self.layout)
        if get_platform() == "gpu" and self.attention == CUDNN:
            attend_rows = functools.partial(attend_rows, use_cudnn=True)

        def layer(x_BTD, weights, constants):
            rope, segment_ids_BT = constants
            attend: Callable[..., jax.Array] | PackedMixers
            attend = functools.partial(attend_rows, segment_ids_BT=segment_ids_BT)
            if self.config.hybrid is not None:
                attend = PackedMixers(attend, self.config.hybrid, segment_ids_BT)
            trained, frozen = weights
            if frozen is None:
                return nnx.merge(graph, trained)(x_BTD, rope, attend, train_product)
            if isinstance(layers, Int8Layers):
                product = int8.make_product(trained, train_product)
            else:
                product = lora.make_product(trained, layers.scale)
            return nnx.merge(graph, frozen)(x_BTD, rope, attend, product)

        if self.remat != "none":
            remat_policy = REMAT_POLICIES[self.remat]
            layer = jax.checkpoint(layer, policy=remat_policy, prevent_cse=False)
        cast = functools.partial(cast_kernels, jnp.dtype(self.dtype))
        frozen: Any = None
        trained: Any = layers
        if isinstance(layers, AdaptedLayers):
            frozen, trained = stacked, layers.adapters
            stacked = getattr(trained, "weights", trained)
        elif isinstance(layers, Int8Layers):
            frozen, stacked = stacked, layers.scales
        total = getattr(trained, "total", None)  # of a `WithGradientSum`
        x_BTD = scan_layers(cast, layer, x_BTD, stacked, (rope, segment_ids_BT), total, frozen)
        return self._normalise(decoder, x_BTD)

    def hidden_cached(
        self, params: Params, tokens_nT, positions_nT, cache: Cache, row_n=None
    ) -> tuple[jax.Array, Cache]:
        """Returns hidden states of tokens that continue rows of a cache, and the new cache.

        Args:
          params: Weights, stacked or from `DecodeBackend.prepare_params`.
          tokens_nT: Token ids.
          positions_nT: Cache slot of each token. A token attends to the slots of its row up to its
            slot, including those that this call writes. A position of S or more marks padding,
            which is not written and has a meaningless result.
          cache: Keys and values of earlier tokens. Updated in place if donated.
          row_n: Cache row of each line of tokens; several lines may continue the same row, but not
            in a hybrid. None means that n = B and that line b continues row b.
        """
        is_in_order = row_n is None
        row_n = jnp.arange(cache.rows) if row_n is None else row_n
        decoder, backend = self._merge(params)
        x_nTD, rope = self._embed(decoder, params, tokens_nT, positions_nT)
        graph, _ = nnx.split(decoder.layers)

        def multiply(name, x, kernel):
            return backend.multiply(LAYER_SPECS[name], x, kernel)

        def step(carry, number_and_weights):
            x_nTD, cache = carry
            layer, weights = number_and_weights
            mixers = CachedMixers(
                backend, self.config.hybrid, cache, layer, row_n, positions_nT, is_in_order
            )
            attend = mixers.attend if self.config.hybrid is None else mixers
            product = multiply
            if isinstance(weights, AdaptedLayers):
                product = lora.make_product(weights.adapters, weights.scale, multiply)
                weights = weights.base
            elif isinstance(weights, Int8Layers):
                product = int8.make_product(weights.scales, multiply)
                weights = weights.base
            x_nTD = nnx.merge(graph, weights)(x_nTD, rope, attend, product)
            return (x_nTD, mixers.cache), None

        x_nTD, cache = backend.apply_layers(step, (x_nTD, cache), params["layers"])
        return self._normalise(decoder, x_nTD), cache

    def logits(self, params: Params, hidden: jax.Array) -> jax.Array:
        """Returns float32 next-token logits [..., V] of hidden states [..., D].

        Weights from `DecodeBackend.prepare_params` are allowed, but give no gradient.
        """
        decoder, backend = self._merge(params)
        is_tied = self.config.tie_embeddings
        kernel = (decoder.embed.embedding if is_tied else decoder.unembed.kernel)[...]
        logits = backend.compute_logits(hidden, kernel, is_tied=is_tied)
        if HEAD_SCALE in params:
            logits *= params[HEAD_SCALE][(None,) * (logits.ndim - 1)]
        return logits

    def _embed(self, decoder: Decoder, params: Params, tokens_BT, positions_BT):
        """Returns the input of the first layer and the rotary tables."""
        x_BTD = look_up(decoder.embed.embedding[...], tokens_BT)
        if HEAD_SCALE in params and self.config.tie_embeddings:
            x_BTD = x_BTD * params[HEAD_SCALE][tokens_BT][..., None]
        x_BTD = x_BTD.astype(jnp.dtype(self.dtype))
        x_BTD = constrain(self.layout, x_BTD, ("batch", "length", "act_embed"))
        return x_BTD, rope_tables(self.config, positions_BT)

    def _normalise(self, decoder: Decoder, x: jax.Array) -> jax.Array:
        """Applies the final norm."""
        scale = decoder.final_norm.scale[...]
        if self.config.hybrid is not None:
            scale = 1.0 + scale
        return rms_norm(x, scale, self.config.norm_eps)

    def _build(self, rngs: nnx.Rngs) -> Decoder:
        block = Block if self.config.hybrid is None else HybridGroup
        return Decoder(self.config, self.layout, rngs, block)

    @functools.cached_property
    def _skeleton(self) -> tuple[Any, Any]:
        """Returns the graph definition and the abstract variables of the decoder."""
        build = lambda: self._build(nnx.Rngs(params=jax.random.key(0)))
        return nnx.split(nnx.eval_shape(build))

    def _merge(self, params: Params) -> tuple[Decoder, DecodeBackend]:
        """Returns the decoder with these weights, and the backend for their form.

        With split layers, the decoder has the weights of the first layer only.
        """
        if isinstance(params["layers"], WithGradientSum):
            params = params | {"layers": params["layers"].weights}
        backend = get_backend(params["layers"])
        if get_platform() in _BACKENDS:
            backend = _BACKENDS[get_platform()](is_split=backend.is_split, layout=self.layout)
        if backend.is_split:
            params = params | {"layers": params["layers"].trees[0]}
        if isinstance(params["layers"], AdaptedLayers | Int8Layers):
            params = params | {"layers": params["layers"].base}
        params = {part: leaves for part, leaves in params.items() if part != HEAD_SCALE}
        expected: object = jax.tree.structure(self.abstract_params())
        found = jax.tree.structure(params)
        if found != expected:
            raise ValueError(
                f"Policy: the weights are a tree {found}, the config describes {expected}"
            )
        return nnx.merge(self._skeleton[0], params), backend


def make_sampler_params(shardings: Params | None) -> Compiled[[Policy, Params], Params]:
    """Returns the program of `Policy.sampler_params`: (policy, weights) -> the sampler's weights.

    It compiles once per policy and shardings; None leaves the placement to the compiler.
    """
    return jax.jit(Policy.sampler_params, static_argnums=0, out_shardings=shardings)
