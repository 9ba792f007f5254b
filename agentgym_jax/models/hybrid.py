"""Layers of Qwen3.5: groups of gated delta nets that end with one layer of gated full attention.

Weights of all groups are stacked along a leading axis, like those of all layers in `decoder`. A
group takes the place of a layer in scans, and its layers are unrolled. Its norms multiply by
1 + scale. A group runs on one device.
"""

import dataclasses
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
from flax import nnx

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models import delta_net
from agentgym_jax.models.config import DecoderConfig, HybridConfig
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.decoder import MLP, constant, normal, rms_norm, rotate
from agentgym_jax.models.delta_net import Memory
from agentgym_jax.models.kv_cache import KVCache

FULL = "full"  # name of the layer with full attention in a group


def linear_name(index: int) -> str:
    """Returns the name of a delta net layer in its group."""
    return f"linear_{index}"


class GatedAttention(nnx.Module):
    """Attention whose queries have a gate for each output element, and partial rotary embeddings."""

    def __init__(self, config: DecoderConfig, stacked: int, rngs: nnx.Rngs):
        G, D, H = stacked, config.hidden_size, config.head_size
        N, K = config.num_heads, config.num_kv_heads
        self.config = config
        in_q, in_kv = ("layers", "embed", "heads", "head"), ("layers", "embed", "kv_heads", "head")
        self.q_kernel = normal((G, D, N, 2 * H), in_q, rngs)  # the query, and then its gate
        self.k_kernel = normal((G, D, K, H), in_kv, rngs)
        self.v_kernel = normal((G, D, K, H), in_kv, rngs)
        out = ("layers", "heads", "head", "embed")
        self.o_kernel = normal((G, N, H, D), out, rngs, _output_stddev(config))
        self.q_norm = constant((G, H), ("layers", "head"), 0.0)
        self.k_norm = constant((G, H), ("layers", "head"), 0.0)

    def __call__(self, x_BTD: jax.Array, rope, attend, product) -> jax.Array:
        """Applies the attention of one layer; arguments as in `decoder.Attention.__call__`."""
        q_BTNH, gate_BTNH = jnp.split(_multiply(self, "q_kernel", x_BTD, product), 2, axis=-1)
        k_BTKH = _multiply(self, "k_kernel", x_BTD, product)
        v_BTKH = _multiply(self, "v_kernel", x_BTD, product)
        q_BTNH = self._rotate(_norm(q_BTNH, self.q_norm, self.config), rope)
        k_BTKH = self._rotate(_norm(k_BTKH, self.k_norm, self.config), rope)
        out_BTNH = attend(q_BTNH, k_BTKH, v_BTKH) * jax.nn.sigmoid(gate_BTNH)
        return _multiply(self, "o_kernel", out_BTNH, product)

    def _rotate(self, x_BTNH: jax.Array, rope) -> jax.Array:
        rotated, rest = jnp.split(x_BTNH, [self.config.rotary_size], axis=-1)
        return jnp.concatenate([rotate(rotated, rope), rest], axis=-1)


class DeltaNet(nnx.Module):
    """Projections, gates and output norm of a gated delta net (delta_net.py)."""

    def __init__(self, config: DecoderConfig, stacked: int, rngs: nnx.Rngs):
        G, D, sizes = stacked, config.hidden_size, config.hybrid
        assert sizes is not None, "only a hybrid has delta nets"
        C, N, P = sizes.num_channels, sizes.value_heads, sizes.value_size
        self.config = config
        per_head = ("layers", "heads")
        self.qkv_kernel = normal((G, D, C), ("layers", "embed", "mlp"), rngs)
        self.z_kernel = normal((G, D, N, P), ("layers", "embed", "heads", "head"), rngs)
        self.beta_kernel = normal((G, D, N), ("layers", "embed", "heads"), rngs)
        self.decay_kernel = normal((G, D, N), ("layers", "embed", "heads"), rngs)
        out = ("layers", "heads", "head", "embed")
        self.out_kernel = normal((G, N, P, D), out, rngs, _output_stddev(config))
        W = sizes.conv_size
        self.conv_weight = normal((G, C, W), ("layers", "mlp", "head"), rngs, W**-0.5)
        self.decay_bias = constant((G, N), per_head, 1.0)
        rates = jax.random.uniform(rngs.params(), (G, N), jnp.float32, 0.01, 16.0)
        self.log_rate = nnx.Param(jnp.log(rates), axes=per_head)
        self.norm = constant((G, P), ("layers", "head"), 1.0)

    def __call__(self, x_BTD: jax.Array, mix, product) -> jax.Array:
        """Applies one delta net to normalised hidden states.

        `mix` is a function of the inputs of `delta_net.mix_tokens` from `qkv_BTC` to `beta_BTN`
        that returns [B, T, N, P]. `product` is that of `decoder.Attention.__call__`.
        """
        qkv_BTC = _multiply(self, "qkv_kernel", x_BTD, product)
        z_BTNP = _multiply(self, "z_kernel", x_BTD, product).astype(jnp.float32)
        beta_BTN = _multiply(self, "beta_kernel", x_BTD, product).astype(jnp.float32)
        speed_BTN = _multiply(self, "decay_kernel", x_BTD, product).astype(jnp.float32)
        speed_BTN = jax.nn.softplus(speed_BTN + self.decay_bias[...][None, None])
        log_decay_BTN = -jnp.exp(self.log_rate[...])[None, None] * speed_BTN
        out_BTNP = mix(qkv_BTC, self.conv_weight[...], log_decay_BTN, jax.nn.sigmoid(beta_BTN))
        normed_BTNP = rms_norm(out_BTNP, self.norm[...], self.config.norm_eps)
        gated_BTNP = (normed_BTNP * jax.nn.silu(z_BTNP)).astype(x_BTD.dtype)
        return _multiply(self, "out_kernel", gated_BTNP, product)


class HybridLayer(nnx.Module):
    """One layer of every group: a mixer of tokens and an MLP."""

    def __init__(self, config: DecoderConfig, stacked: int, rngs: nnx.Rngs, *, is_linear: bool):
        shape, axes = (stacked, config.hidden_size), ("layers", "embed")
        self.config = config
        self.attention_norm = nnx.Dict(scale=constant(shape, axes, 0.0))
        if is_linear:
            self.delta_net = DeltaNet(config, stacked, rngs)
        else:
            self.attention = GatedAttention(config, stacked, rngs)
        self.mlp_norm = nnx.Dict(scale=constant(shape, axes, 0.0))
        self.mlp = MLP(config, None, rngs, stacked)

    def __call__(self, x_BTD: jax.Array, apply_mixer, product) -> jax.Array:
        """Applies the layer; `apply_mixer` maps normalised hidden states to an update of them."""
        x_BTD = x_BTD + apply_mixer(_norm(x_BTD, self.attention_norm.scale, self.config))
        return x_BTD + self.mlp(_norm(x_BTD, self.mlp_norm.scale, self.config), product)


class HybridGroup(nnx.Module):
    """Stacked weights of all groups; a copy with the weights of one group can be called."""

    def __init__(self, config: DecoderConfig, layout: Layout | None, rngs: nnx.Rngs):
        if layout is not None:
            raise ValueError("a decoder with gated delta nets (Qwen3.5) runs on one device only")
        assert config.hybrid is not None, "only a hybrid has groups"
        self.num_linear = config.hybrid.interval - 1
        stacked = config.num_layers // config.hybrid.interval
        for i in range(self.num_linear):
            setattr(self, linear_name(i), HybridLayer(config, stacked, rngs, is_linear=True))
        setattr(self, FULL, HybridLayer(config, stacked, rngs, is_linear=False))

    def __call__(self, x_BTD: jax.Array, rope, mixers, product) -> jax.Array:
        """Applies one group.

        `mixers` is a `PackedMixers` or `CachedMixers`; other arguments are those of
        `decoder.Attention.__call__`.
        """
        for i in range(self.num_linear):
            layer = getattr(self, linear_name(i))
            mix = lambda *inputs, i=i: mixers.mix(i, *inputs)
            x_BTD = layer(x_BTD, lambda x, a=layer, m=mix: a.delta_net(x, m, product), product)
        layer = getattr(self, FULL)
        attend = lambda x: layer.attention(x, rope, mixers.attend, product)
        return layer(x_BTD, attend, product)


def _output_stddev(config: DecoderConfig) -> float:
    return 0.02 / (2 * config.num_layers) ** 0.5


def _norm(x: jax.Array, scale: nnx.Param, config: DecoderConfig) -> jax.Array:
    return rms_norm(x, 1.0 + scale[...], config.norm_eps)


def _multiply(module: nnx.Module, name: str, x: jax.Array, product) -> jax.Array:
    return product(name, x, getattr(module, name)[...].astype(x.dtype))


@flax.struct.dataclass
class PackedMixers:
    """Functions that mix the tokens of packed rows, in which every segment is a new sequence."""

    # full attention of q, k and v
    attend: Callable[..., jax.Array] = flax.struct.field(pytree_node=False)
    config: HybridConfig = flax.struct.field(pytree_node=False)
    segment_ids_BT: jax.Array

    def mix(
        self,
        index: int,
        qkv_BTC: jax.Array,
        conv_weight_CW: jax.Array,
        log_decay_BTN: jax.Array,
        beta_BTN: jax.Array,
    ) -> jax.Array:
        """Mixes the tokens of delta net `index` of a group."""
        del index
        memory = Memory.create(self.config, qkv_BTC.shape[0])
        gates = (conv_weight_CW, log_decay_BTN, beta_BTN)
        return delta_net.mix_tokens(self.config, qkv_BTC, *gates, memory, self.segment_ids_BT)[0]


@flax.struct.dataclass
class HybridCache:
    """Cache of rows: slots of the layers with full attention, memory of the delta nets.

    The memory of a row is that of its tokens so far, so a row cannot return to fewer tokens without
    computing them again. The token of position 0 starts a new sequence.
    """

    kv: KVCache
    tail_LBRC: jax.Array  # last inputs of the convolution of each delta net
    state_LBNHP: jax.Array  # states of the heads of each delta net

    @property
    def rows(self) -> int:
        """Number of rows (B)."""
        return self.kv.rows

    @property
    def length(self) -> int:
        """Slots per row (S), in tokens."""
        return self.kv.length


Cache = KVCache | HybridCache


def create_cache(
    config: DecoderConfig,
    rows: int,
    length: int,
    dtype: jax.typing.DTypeLike,
    layout: Layout | None = None,
) -> Cache:
    """Creates an empty cache for a decoder; arguments are those of `KVCache.create`."""
    kv = KVCache.create(config, rows, length, dtype, layout)
    if (hybrid := config.hybrid) is None:
        return kv
    count = config.num_layers - config.num_full_layers
    one = jax.eval_shape(lambda: Memory.create(hybrid, rows))
    zeros = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), one)
    return HybridCache(kv, zeros.tail_BRC, zeros.state_BNHP)


class CachedMixers:
    """Functions that mix new tokens of one layer or group with those in the cache, and write it.

    In a hybrid, a row may have only one line: its lines would all start from the same memory.
    """

    def __init__(
        self,
        backend: DecodeBackend,
        config: HybridConfig | None,
        cache: Cache,
        group: jax.Array | int,
        row_n: jax.Array,
        positions_nT: jax.Array,
        is_in_order: bool,
    ):
        """Starts from `cache`; the attribute `cache` has the new one after the layers are applied.

        `config` is None for a decoder that is no hybrid. The other arguments are those of
        `DecodeBackend.update_cache`.
        """
        self.cache = cache
        self._backend, self._config, self._group = backend, config, group
        self._row_n, self._positions_nT, self._is_in_order = row_n, positions_nT, is_in_order

    def attend(self, q_nTNH: jax.Array, k_nTKH: jax.Array, v_nTKH: jax.Array) -> jax.Array:
        """Computes the full attention."""
        hybrid = self.cache if isinstance(self.cache, HybridCache) else None
        out_nTNH, kv = self._backend.update_cache(
            self.cache if hybrid is None else hybrid.kv,
            self._group,
            q_nTNH,
            k_nTKH,
            v_nTKH,
            self._row_n,
            self._positions_nT,
            is_in_order=self._is_in_order,
        )
        self.cache = kv if hybrid is None else dataclasses.replace(hybrid, kv=kv)
        return out_nTNH

    def mix(
        self,
        index: int,
        qkv_nTC: jax.Array,
        conv_weight_CW: jax.Array,
        log_decay_nTN: jax.Array,
        beta_nTN: jax.Array,
    ) -> jax.Array:
        """Mixes the tokens of delta net `index` of the group."""
        assert self._config is not None and isinstance(self.cache, HybridCache)
        layer = self._group * (self._config.interval - 1) + index
        cache, row_n, positions_nT = self.cache, self._row_n, self._positions_nT
        is_token_nT = positions_nT < cache.length
        count_n = jnp.sum(is_token_nT, axis=1)
        # Padding neither decays nor changes the state.
        log_decay_nTN = jnp.where(is_token_nT[..., None], log_decay_nTN, 0.0)
        beta_nTN = jnp.where(is_token_nT[..., None], beta_nTN, 0.0)
        is_new_n = positions_nT[:, 0] == 0
        tail_nRC = jnp.where(is_new_n[:, None, None], 0.0, cache.tail_LBRC[layer, row_n])
        state_nNHP = jnp.where(is_new_n[:, None, None, None], 0.0, cache.state_LBNHP[layer, row_n])
        gates = (conv_weight_CW, log_decay_nTN, beta_nTN)
        memory = Memory(tail_nRC, state_nNHP)
        ones_nT = jnp.ones(positions_nT.shape, jnp.int32)
        out_nTNP, state_nNHP = delta_net.mix_tokens(self._config, qkv_nTC, *gates, memory, ones_nT)
        inputs_nTC = jnp.concatenate([tail_nRC, qkv_nTC.astype(jnp.float32)], axis=1)
        last_nR = count_n[:, None] + jnp.arange(tail_nRC.shape[1])[None]
        tail_nRC = jnp.take_along_axis(inputs_nTC, last_nR[..., None], axis=1)
        self.cache = dataclasses.replace(
            cache,
            tail_LBRC=cache.tail_LBRC.at[layer, row_n].set(tail_nRC, mode="drop"),
            state_LBNHP=cache.state_LBNHP.at[layer, row_n].set(state_nNHP, mode="drop"),
        )
        return out_nTNP
