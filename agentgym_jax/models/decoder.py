"""Decoder-only transformer: Qwen2.5, Qwen3 and Llama by config; hybrid.py has Qwen3.5's layers.

Weights of all layers are stacked along a leading axis L for one `lax.scan`, so the traced program
does not grow with depth. Weights have logical axis names, which `sharding.py` maps to a mesh.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from agentgym_jax.mesh.sharding import Layout, constrain
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.einsum import LAYER_SPECS
from agentgym_jax.models.lora import is_adapter


def normal(shape: tuple[int, ...], axes: tuple[str, ...], rngs: nnx.Rngs, stddev=0.02):
    """Returns a float32 parameter with random values and logical axis names."""
    value = stddev * jax.random.normal(rngs.params(), shape, jnp.float32)
    return nnx.Param(value, axes=axes)


def constant(shape: tuple[int, ...], axes: tuple[str, ...], fill: float):
    """Returns a float32 parameter whose values are all `fill`, with logical axis names."""
    return nnx.Param(jnp.full(shape, fill, jnp.float32), axes=axes)


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """Returns x / rms(x) * scale over the last axis, in the type of x; computes in float32."""
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    scale = scale.astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))
    return (normed * scale).astype(x.dtype)


def _rope_frequencies(config: DecoderConfig) -> jax.Array:
    """Returns the rotation of each pair of a head, in radians per position: float32 [H / 2].

    H is the rotated part of a head.
    """
    exponents = jnp.arange(0, config.rotary_size, 2, dtype=jnp.float32) / config.rotary_size
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    turns = scaling.original_max_position * frequencies / (2 * jnp.pi)
    keep = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return keep * frequencies + (1.0 - keep) * frequencies / scaling.factor


def rope_tables(config: DecoderConfig, positions_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the cosines and sines of the rotation angles: two float32 arrays [B, T, 1, H / 2]."""
    angles = positions_BT[:, :, None].astype(jnp.float32) * _rope_frequencies(config)[None, None]
    return jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]


def rotate(x_BTNH: jax.Array, rope: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotates elements i and i + H / 2 of every head by the angle of pair i (arXiv:2104.09864)."""
    cos, sin = rope
    a, b = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x_BTNH.dtype)


class Attention(nnx.Module):
    """Query, key, value and output projections of attention."""

    def __init__(self, config: DecoderConfig, layout: Layout | None, rngs: nnx.Rngs):
        L, D, H = config.num_layers, config.hidden_size, config.head_size
        N, K = config.num_heads, config.num_kv_heads
        self.config, self.layout = config, layout
        in_q, in_kv = ("layers", "embed", "heads", "head"), ("layers", "embed", "kv_heads", "head")
        self.q_kernel = normal((L, D, N, H), in_q, rngs)
        self.k_kernel = normal((L, D, K, H), in_kv, rngs)
        self.v_kernel = normal((L, D, K, H), in_kv, rngs)
        out = ("layers", "heads", "head", "embed")
        self.o_kernel = normal((L, N, H, D), out, rngs, 0.02 / (2 * L) ** 0.5)
        if config.qkv_bias:
            self.q_bias = constant((L, N, H), ("layers", "heads", "head"), 0.0)
            self.k_bias = constant((L, K, H), ("layers", "kv_heads", "head"), 0.0)
            self.v_bias = constant((L, K, H), ("layers", "kv_heads", "head"), 0.0)
        if config.qk_norm:
            self.q_norm = constant((L, H), ("layers", "head"), 1.0)
            self.k_norm = constant((L, H), ("layers", "head"), 1.0)

    def __call__(self, x_BTD: jax.Array, rope, attend, product) -> jax.Array:
        """Applies the attention of one layer to normalised hidden states.

        `rope` is the result of `rope_tables`. `attend` is a function from q, k and v to weighted
        sums of v, [B, T, N, H]. `product` is a function of the name of a kernel (LAYER_SPECS),
        hidden states and the kernel.
        """
        q_BTNH = self._project("q", x_BTD, product, "act_heads")
        k_BTKH = self._project("k", x_BTD, product, "act_kv_heads")
        v_BTKH = self._project("v", x_BTD, product, "act_kv_heads")
        if self.config.qk_norm:
            q_BTNH = rms_norm(q_BTNH, self.q_norm[...], self.config.norm_eps)
            k_BTKH = rms_norm(k_BTKH, self.k_norm[...], self.config.norm_eps)
        out_BTNH = attend(rotate(q_BTNH, rope), rotate(k_BTKH, rope), v_BTKH)
        out_BTNH = constrain(self.layout, out_BTNH, ("batch", "length", "act_heads", "act_head"))
        return product("o_kernel", out_BTNH, self.o_kernel[...].astype(x_BTD.dtype))

    def _project(self, name: str, x_BTD: jax.Array, product, heads: str) -> jax.Array:
        kernel = getattr(self, f"{name}_kernel")[...].astype(x_BTD.dtype)
        y = product(f"{name}_kernel", x_BTD, kernel)
        if self.config.qkv_bias:
            y += getattr(self, f"{name}_bias")[...].astype(x_BTD.dtype)[None, None]
        return constrain(self.layout, y, ("batch", "length", heads, "act_head"))


class MLP(nnx.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (arXiv:2002.05202)."""

    def __init__(
        self,
        config: DecoderConfig,
        layout: Layout | None,
        rngs: nnx.Rngs,
        num_stacked: int | None = None,
    ):
        """Creates random weights of `num_stacked` layers; None for all layers of the decoder."""
        L, D, F = num_stacked or config.num_layers, config.hidden_size, config.intermediate_size
        self.layout = layout
        self.gate_kernel = normal((L, D, F), ("layers", "embed", "mlp"), rngs)
        self.up_kernel = normal((L, D, F), ("layers", "embed", "mlp"), rngs)
        stddev = 0.02 / (2 * config.num_layers) ** 0.5
        self.down_kernel = normal((L, F, D), ("layers", "mlp", "embed"), rngs, stddev)

    def __call__(self, x_BTD: jax.Array, product) -> jax.Array:
        """Applies the MLP of one layer; `product` as in `Attention.__call__`."""
        dtype = x_BTD.dtype
        gate_BTF = product("gate_kernel", x_BTD, self.gate_kernel[...].astype(dtype))
        up_BTF = product("up_kernel", x_BTD, self.up_kernel[...].astype(dtype))
        inner_BTF = jax.nn.silu(gate_BTF) * up_BTF
        inner_BTF = constrain(self.layout, inner_BTF, ("batch", "length", "act_mlp"))
        return product("down_kernel", inner_BTF, self.down_kernel[...].astype(dtype))


class Block(nnx.Module):
    """Stacked weights of all layers; a copy with the weights of one layer can be called."""

    def __init__(self, config: DecoderConfig, layout: Layout | None, rngs: nnx.Rngs):
        shape, axes = (config.num_layers, config.hidden_size), ("layers", "embed")
        self.config, self.layout = config, layout
        self.attention_norm = nnx.Dict(scale=constant(shape, axes, 1.0))
        self.attention = Attention(config, layout, rngs)
        self.mlp_norm = nnx.Dict(scale=constant(shape, axes, 1.0))
        self.mlp = MLP(config, layout, rngs)

    def __call__(self, x_BTD: jax.Array, rope, attend, product) -> jax.Array:
        """Applies one layer; arguments as in `Attention.__call__`."""
        eps = self.config.norm_eps
        normed_BTD = rms_norm(x_BTD, self.attention_norm.scale[...], eps)
        x_BTD = x_BTD + self.attention(normed_BTD, rope, attend, product)
        x_BTD = x_BTD + self.mlp(rms_norm(x_BTD, self.mlp_norm.scale[...], eps), product)
        return constrain(self.layout, x_BTD, ("batch", "length", "act_embed"))


class Decoder(nnx.Module):
    """Weights of a decoder; `policy.Policy` defines its functions.

    A tied embedding is also the output head.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layout: Layout | None,
        rngs: nnx.Rngs,
        block: Callable[[DecoderConfig, Layout | None, nnx.Rngs], nnx.Module],
    ):
        """Creates random weights; `block` is the class of the stacked layers."""
        V, D = config.vocab_size, config.hidden_size
        self.embed = nnx.Dict(embedding=normal((V, D), ("vocab", "embed"), rngs))
        self.layers = block(config, layout, rngs)
        scale = 1.0 if config.hybrid is None else 0.0  # the norms of a hybrid multiply by 1 + scale
        self.final_norm = nnx.Dict(scale=constant((D,), ("embed",), scale))
        if not config.tie_embeddings:
            self.unembed = nnx.Dict(kernel=normal((D, V), ("embed", "vocab"), rngs))


def cast_kernels(dtype: jnp.dtype, layer: Any) -> Any:
    """Casts the kernels of one layer to the compute type."""

    def cast(path, x):
        # the last key of a path can be the value inside an nnx variable
        name = next(k.key for k in reversed(path) if isinstance(k, jax.tree_util.DictKey))
        return x.astype(dtype) if name in LAYER_SPECS or is_adapter(name) else x

    return jax.tree.map_with_path(cast, layer)
