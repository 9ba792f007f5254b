"""Decoder-only transformer with stacked layers: Qwen2.5, Qwen3 and Llama by config.

RMS norms before each half of a block, rotary positions, grouped-query attention, SwiGLU.
All layers of a kind share one array with a leading axis L and run under one `lax.scan`, so
what is traced and compiled does not grow with depth. Weights say their logical axes;
`sharding.py` says where these live.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from agentgym_jax.models.attention import attend_cache, attend_segments
from agentgym_jax.models.config import DecoderConfig, RopeScaling
from agentgym_jax.models.einsum import einsum
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.layer_scan import scan_layers
from agentgym_jax.models.split_layers import PRODUCTS, SplitLayers
from agentgym_jax.native import attention as native_attention
from agentgym_jax.native.products import einsum_transposed
from agentgym_jax.sharding import Layout, constrain

INIT_STDDEV = 0.02

# Results of a layer that its backward pass finds stored. It computes the others again.
REMAT_POLICIES: dict[str, Callable[..., bool] | None] = {
    "none": None,
    "block": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


def weight(shape: tuple[int, ...], axes: tuple[str, ...], rngs: nnx.Rngs, stddev: float):
    """Normal float32 parameter with logical axis names."""
    value = stddev * jax.random.normal(rngs.params(), shape, jnp.float32)
    return nnx.Param(value, out_sharding=axes, eager_sharding=False)


def constant(shape: tuple[int, ...], axes: tuple[str, ...], fill: float):
    """Constant float32 parameter with logical axis names."""
    return nnx.Param(jnp.full(shape, fill, jnp.float32), out_sharding=axes, eager_sharding=False)


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) * scale over the last axis, in float32, given back in the type of x."""
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    scale = scale.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))
    return (normed * scale).astype(x.dtype)


def rope_frequencies(config: DecoderConfig) -> jax.Array:
    """Radians a position of each pair of the head: float32 [H / 2]."""
    exponents = jnp.arange(0, config.head_size, 2, dtype=jnp.float32) / config.head_size
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    return _llama3_frequencies(frequencies, scaling)


def _llama3_frequencies(frequencies: jax.Array, scaling: RopeScaling) -> jax.Array:
    """Low frequencies divided by the factor, high ones kept, a linear blend in between."""
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    turns = scaling.original_max_position * frequencies / (2 * jnp.pi)
    keep = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return keep * frequencies + (1.0 - keep) * frequencies / scaling.factor


def rope_tables(config: DecoderConfig, positions_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of every position: float32 [B, T, 1, H / 2] each."""
    angles = positions_BT[:, :, None].astype(jnp.float32) * rope_frequencies(config)[None, None]
    return jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]


def rotate(x_BTNH: jax.Array, rope: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turns pair (i, i + H/2) of every head by its angle (arXiv:2104.09864, halves layout)."""
    cos, sin = rope
    a, b = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x_BTNH.dtype)


class Embed(nnx.Module):
    """Token embedding; also the output head where the config ties them."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs):
        shape = (config.vocab_size, config.hidden_size)
        self.embedding = weight(shape, ("vocab", "embed"), rngs, INIT_STDDEV)


def _look_up(table_VD: jax.Array, tokens_BT: jax.Array) -> jax.Array:
    """Rows of a table."""
    if table_VD.dtype == jnp.bfloat16 and jax.default_backend() == "cpu":
        # XLA there widens the table to read it, and in a decode loop the whole of it before the
        # loop, were it not for the tokens.
        table_VD, tokens_BT = jax.lax.optimization_barrier((table_VD, tokens_BT))
    return table_VD[tokens_BT]


def _cast_kernels(dtype: jnp.dtype, layer: Any) -> Any:
    """Weights of one layer with the operands of matrix products in the compute type."""

    def cast(path, x):
        name = path[-2].key  # the last one is that of the value in its nnx variable
        return x.astype(dtype) if name in PRODUCTS else x

    return jax.tree.map_with_path(cast, layer)


class Unembed(nnx.Module):
    """Output head of its own."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs):
        shape = (config.hidden_size, config.vocab_size)
        self.kernel = weight(shape, ("embed", "vocab"), rngs, INIT_STDDEV)


class Norm(nnx.Module):
    """Scale of an RMS norm; `layers` stacked ones, or a single one."""

    def __init__(self, config: DecoderConfig, layers: int | None):
        self.eps = config.norm_eps
        if layers is None:
            self.scale = constant((config.hidden_size,), ("embed",), 1.0)
        else:
            self.scale = constant((layers, config.hidden_size), ("layers", "embed"), 1.0)

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Normalised x."""
        return rms_norm(x_BTD, self.scale[...], self.eps)


class Attention(nnx.Module):
    """Projections around attention; the kernel itself is handed in."""

    def __init__(self, config: DecoderConfig, layout: Layout | None, rngs: nnx.Rngs):
        L, D, H = config.num_layers, config.hidden_size, config.head_size
        N, K = config.num_heads, config.num_kv_heads
        self.config, self.layout = config, layout
        in_q, in_kv = ("layers", "embed", "heads", "head"), ("layers", "embed", "kv_heads", "head")
        self.q_kernel = weight((L, D, N, H), in_q, rngs, INIT_STDDEV)
        self.k_kernel = weight((L, D, K, H), in_kv, rngs, INIT_STDDEV)
        self.v_kernel = weight((L, D, K, H), in_kv, rngs, INIT_STDDEV)
        out = ("layers", "heads", "head", "embed")
        self.o_kernel = weight((L, N, H, D), out, rngs, INIT_STDDEV / (2 * L) ** 0.5)
        if config.qkv_bias:
            self.q_bias = constant((L, N, H), ("layers", "heads", "head"), 0.0)
            self.k_bias = constant((L, K, H), ("layers", "kv_heads", "head"), 0.0)
            self.v_bias = constant((L, K, H), ("layers", "kv_heads", "head"), 0.0)
        if config.qk_norm:
            self.q_norm = constant((L, H), ("layers", "head"), 1.0)
            self.k_norm = constant((L, H), ("layers", "head"), 1.0)

    def __call__(self, x_BTD: jax.Array, rope, attend, product) -> jax.Array:
        """Attention of one layer; `attend(q, k, v)` mixes the tokens."""
        q_BTNH, k_BTKH, v_BTKH = self._project(x_BTD, product)
        if self.config.qk_norm:
            q_BTNH = rms_norm(q_BTNH, self.q_norm[...], self.config.norm_eps)
            k_BTKH = rms_norm(k_BTKH, self.k_norm[...], self.config.norm_eps)
        out_BTNH = attend(rotate(q_BTNH, rope), rotate(k_BTKH, rope), v_BTKH)
        out_BTNH = constrain(self.layout, out_BTNH, ("batch", "length", "act_heads", "act_head"))
        return product(PRODUCTS["o_kernel"], out_BTNH, self.o_kernel[...].astype(x_BTD.dtype))

    def _project(self, x_BTD: jax.Array, product) -> tuple[jax.Array, jax.Array, jax.Array]:
        def project(kernel, bias, heads):
            y = product(PRODUCTS["q_kernel"], x_BTD, kernel[...].astype(x_BTD.dtype))
            if bias is not None:
                y += bias[...].astype(x_BTD.dtype)[None, None]
            return constrain(self.layout, y, ("batch", "length", heads, "act_head"))

        has_bias = self.config.qkv_bias
        return (
            project(self.q_kernel, self.q_bias if has_bias else None, "act_heads"),
            project(self.k_kernel, self.k_bias if has_bias else None, "act_kv_heads"),
            project(self.v_kernel, self.v_bias if has_bias else None, "act_kv_heads"),
        )


def _widen(product, x_BTD: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    if x_BTD.dtype == jnp.float32:
        return _widen_float32(product, x_BTD, kernel_DF)
    return product(PRODUCTS["up_kernel"], x_BTD, kernel_DF)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _widen_float32(product, x_BTD: jax.Array, kernel_DF: jax.Array) -> jax.Array:
    """x @ kernel, whose kernel gradient is x.T @ d_y and not (d_y.T @ x).T as by default.

    On CPU the left side is transposed in memory: here the narrow array, once for both kernels
    that read it. 20 % of an update of configs/quickstart.py on 2 cores.
    """
    return product(PRODUCTS["up_kernel"], x_BTD, kernel_DF)


def _widen_forward(product, x_BTD, kernel_DF):
    return _widen_float32(product, x_BTD, kernel_DF), (x_BTD, kernel_DF)


def _widen_backward(product, saved, d_y_BTF):
    x_BTD, kernel_DF = saved
    d_x_BTD = jnp.einsum("btf,df->btd", d_y_BTF, kernel_DF)
    return d_x_BTD, jnp.einsum("btd,btf->df", x_BTD, d_y_BTF)


_widen_float32.defvjp(_widen_forward, _widen_backward)


class MLP(nnx.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (arXiv:2002.05202)."""

    def __init__(self, config: DecoderConfig, layout: Layout | None, rngs: nnx.Rngs):
        L, D, F = config.num_layers, config.hidden_size, config.intermediate_size
        self.layout = layout
        self.gate_kernel = weight((L, D, F), ("layers", "embed", "mlp"), rngs, INIT_STDDEV)
        self.up_kernel = weight((L, D, F), ("layers", "embed", "mlp"), rngs, INIT_STDDEV)
        stddev = INIT_STDDEV / (2 * L) ** 0.5
        self.down_kernel = weight((L, F, D), ("layers", "mlp", "embed"), rngs, stddev)

    def __call__(self, x_BTD: jax.Array, product) -> jax.Array:
        """The block of one layer."""
        dtype = x_BTD.dtype
        gate_BTF = _widen(product, x_BTD, self.gate_kernel[...].astype(dtype))
        up_BTF = _widen(product, x_BTD, self.up_kernel[...].astype(dtype))
        inner_BTF = jax.nn.silu(gate_BTF) * up_BTF
        inner_BTF = constrain(self.layout, inner_BTF, ("batch", "length", "act_mlp"))
        return product(PRODUCTS["down_kernel"], inner_BTF, self.down_kernel[...].astype(dtype))


class Block(nnx.Module):
    """All layers, stacked; called with the weights of one."""

    def __init__(self, config: DecoderConfig, layout: Layout | None, rngs: nnx.Rngs):
        self.layout = layout
        self.attention_norm = Norm(config, config.num_layers)
        self.attention = Attention(config, layout, rngs)
        self.mlp_norm = Norm(config, config.num_layers)
        self.mlp = MLP(config, layout, rngs)

    def __call__(self, x_BTD: jax.Array, rope, attend, product) -> jax.Array:
        """Residual block of one layer."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), rope, attend, product)
        x_BTD = x_BTD + self.mlp(self.mlp_norm(x_BTD), product)
        return constrain(self.layout, x_BTD, ("batch", "length", "act_embed"))


class Decoder(nnx.Module):
    """The network. Weights are float32 or the compute type; they are cast where they are used.

    Attributes:
      config: shape of the network.
      dtype: type of activations and matrix products.
      remat: a key of REMAT_POLICIES.
      layout: pins the activations to a mesh; None for one device.
    """

    def __init__(
        self,
        config: DecoderConfig,
        *,
        dtype: jax.typing.DTypeLike,
        remat: str,
        layout: Layout | None,
        rngs: nnx.Rngs,
    ):
        if remat not in REMAT_POLICIES:
            raise ValueError(f"remat is {remat!r}; known policies: {', '.join(REMAT_POLICIES)}")
        self.config, self.remat, self.layout = config, remat, layout
        self.dtype = jnp.dtype(dtype)
        self.embed = Embed(config, rngs)
        self.layers = Block(config, layout, rngs)
        self.final_norm = Norm(config, None)
        if not config.tie_embeddings:
            self.unembed = Unembed(config, rngs)

    def hidden(
        self, tokens_BT: jax.Array, positions_BT: jax.Array, segment_ids_BT: jax.Array
    ) -> jax.Array:
        """Hidden states of packed rows, after the final norm: [B, T, D]."""
        x_BTD, rope = self._embed(tokens_BT, positions_BT)
        graph, stacked = nnx.split(self.layers)

        def layer(x_BTD, weights, constants):
            rope, segment_ids_BT = constants
            attend = functools.partial(attend_segments, segment_ids_BT=segment_ids_BT)
            return nnx.merge(graph, weights)(x_BTD, rope, attend, einsum)

        if self.remat != "none":
            policy = REMAT_POLICIES[self.remat]
            layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)
        cast = functools.partial(_cast_kernels, self.dtype)
        x_BTD = scan_layers(cast, layer, x_BTD, stacked, (rope, segment_ids_BT))
        return self.final_norm(x_BTD)

    def hidden_cached(
        self,
        tokens_nT: jax.Array,
        positions_nT: jax.Array,
        cache: KVCache,
        row_n: jax.Array | None = None,
        layers: SplitLayers | None = None,
    ) -> tuple[jax.Array, KVCache]:
        """Hidden states of new tokens, and the cache that holds them too.

        With `layers` there is no scan over stacked ones.
        """
        is_native = layers is not None and layers.is_native
        product = einsum_transposed if is_native else einsum
        written_n = jnp.arange(cache.rows) if row_n is None else row_n
        x_nTD, rope = self._embed(tokens_nT, positions_nT)
        graph, stacked = nnx.split(self.layers)

        def attend(layer, q_nTNH, cache):
            keys, values = cache.k_LBKSH, cache.v_LBKSH
            if is_native and native_attention.is_fast(q_nTNH, keys):
                out_nNH = native_attention.attend_step(
                    q_nTNH[:, 0], keys, values, layer, written_n, positions_nT[:, 0]
                )
                return out_nNH[:, None]
            return attend_cache(q_nTNH, keys, values, layer, row_n, positions_nT)

        def step(carry, layer_and_weights):
            x_nTD, cache = carry
            layer, weights = layer_and_weights
            caches = []

            def mix(q_nTNH, k_nTKH, v_nTKH):
                caches.append(cache.write(layer, k_nTKH, v_nTKH, written_n, positions_nT))
                return attend(layer, q_nTNH, caches[0])

            x_nTD = nnx.merge(graph, weights)(x_nTD, rope, mix, product)
            return (x_nTD, caches[0]), None

        if layers is None:
            numbers = jnp.arange(self.config.num_layers)
            (x_nTD, cache), _ = jax.lax.scan(step, (x_nTD, cache), (numbers, stacked))
        else:
            for number_and_weights in enumerate(layers.of):
                (x_nTD, cache), _ = step((x_nTD, cache), number_and_weights)
        return self.final_norm(x_nTD), cache

    def logits(self, hidden: jax.Array, *, is_native: bool = False) -> jax.Array:
        """Float32 logits [..., V] of hidden states [..., D]; `is_native`: see SplitLayers."""
        rows = "abc"[: hidden.ndim - 1]
        is_tied = self.config.tie_embeddings
        kernel = (self.embed.embedding if is_tied else self.unembed.kernel)[...]
        if is_native:
            product, axes = einsum_transposed, "dv"
        else:
            product, axes = einsum, "vd" if is_tied else "dv"
        return product(
            f"{rows}d,{axes}->{rows}v",
            hidden,
            kernel.astype(hidden.dtype),
            preferred_element_type=jnp.float32,
        )

    def _embed(self, tokens_BT: jax.Array, positions_BT: jax.Array):
        """Input of the first layer, and the tables of the rotary positions."""
        x_BTD = _look_up(self.embed.embedding[...], tokens_BT).astype(self.dtype)
        x_BTD = constrain(self.layout, x_BTD, ("batch", "length", "act_embed"))
        return x_BTD, rope_tables(self.config, positions_BT)
