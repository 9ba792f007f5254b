"""Hardware-dependent parts of decoding: replacements for operations that are slow on CPU in XLA."""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.mesh.sharding import Layout, get_platform
from agentgym_jax.models.attention import attend_cache
from agentgym_jax.models.einsum import KERNEL_SPECS, einsum
from agentgym_jax.native import native_attention, products

# Einsum specification of every kernel of a decoder, including the untied output head ("kernel").
_SPECS = KERNEL_SPECS | {"kernel": "bd,dv->bv"}


@flax.struct.dataclass
class SplitLayers:
    """Layer weights split into one tree per layer.

    On CPU and GPU, a scan over stacked weights would copy the weights of each layer before it uses
    them, which takes most of the time of a decode step.
    """

    trees: tuple[Any, ...]
    # True if all kernels, including an untied output head, are results of `products.transposed`.
    is_native: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class DecodeBackend:
    """Operations of a decoder that depend on the form of its weights.

    Attributes:
      is_split: True if the layers are `SplitLayers`; for CPU and GPU.
      is_native: True if decode steps use the functions of `native`; needs `is_split`.
    """

    is_split: bool = False
    is_native: bool = False

    def prepare_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the weights in the form that decoding reads fastest."""
        return _split_layers(params, is_native=self.is_native) if self.is_split else params

    def restore_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Converts the result of `prepare_params` back."""
        return _stack_layers(params) if self.is_split else params

    def multiply(
        self, spec: str, x: jax.Array, kernel: jax.Array, preferred_element_type: Any = None
    ) -> jax.Array:
        """Multiplies hidden states with a prepared kernel; `spec` as in `einsum.LAYER_SPECS`."""
        product = products.einsum_transposed if self.is_native else einsum
        return product(spec, x, kernel, preferred_element_type)

    def compute_logits(self, hidden: jax.Array, kernel: jax.Array, *, is_tied: bool) -> jax.Array:
        """Returns float32 logits [..., V] of hidden states [..., D].

        The head has axes [V, D] if it is tied to the embedding, and [D, V] otherwise.
        """
        rows = "abc"[: hidden.ndim - 1]
        # With the specification of a head [D, V], `einsum_transposed` takes its transpose [V, D].
        head = "vd" if is_tied and not self.is_native else "dv"
        spec = f"{rows}d,{head}->{rows}v"
        return self.multiply(spec, hidden, kernel.astype(hidden.dtype), jnp.float32)

    def attend(self, q_nTNH, cache: Any, layer, row_n, positions_nT, *, is_in_order: bool):
        """Computes attention to the cache (`attend_cache`), in native code if that is faster.

        `is_in_order` is True if row_n is 0, 1, ...
        """
        slots = (cache.k_LBKSH, cache.v_LBKSH)
        if self.is_native and native_attention.is_fast(q_nTNH, cache.k_LBKSH):
            out_nNH = native_attention.attend_step(
                q_nTNH[:, 0], *slots, layer, row_n, positions_nT[:, 0]
            )
            return out_nNH[:, None]
        rows = None if is_in_order else row_n  # None saves the look-up of rows
        return attend_cache(q_nTNH, *slots, layer, rows, positions_nT, scales=cache.scales)

    def update_cache(
        self,
        cache: Any,
        layer: jax.Array | int,
        q_nTNH: jax.Array,
        k_nTKH: jax.Array,
        v_nTKH: jax.Array,
        row_n: jax.Array,
        positions_nT: jax.Array,
        *,
        is_in_order: bool,
    ) -> tuple[jax.Array, Any]:
        """Writes new tokens of a layer to the cache; returns their attention and the new cache.

        Arguments are those of `KVCache.write` and `attend`.
        """
        cache = cache.write(layer, k_nTKH, v_nTKH, row_n, positions_nT)
        return self.attend(
            q_nTNH, cache, layer, row_n, positions_nT, is_in_order=is_in_order
        ), cache

    def apply_layers(self, step: Any, carry: Any, layers: Any) -> Any:
        """Applies `step(carry, (layer number, weights))` to all layers; returns the last carry."""
        if not self.is_split:
            num_layers = jax.tree.leaves(layers)[0].shape[0]
            return jax.lax.scan(step, carry, (jnp.arange(num_layers), layers))[0]
        for number_and_weights in enumerate(layers.trees):
            carry, _ = step(carry, number_and_weights)
        return carry


def choose_backend(
    num_rows: int,
    dtype: jax.typing.DTypeLike,
    layout: Layout | None,
    *,
    allow_native: bool = True,
) -> DecodeBackend:
    """Returns the fastest backend for decode steps of `num_rows` rows on this machine.

    `allow_native` is False for a decoder with kernels that `native` does not support.
    """
    is_cpu = get_platform() == "cpu"
    is_split = (is_cpu and layout is None) or get_platform() == "gpu"
    is_native = is_cpu and is_split and allow_native and products.supports(num_rows, dtype)
    return DecodeBackend(is_split, is_native=is_native)


def get_backend(layers: Any) -> DecodeBackend:
    """Returns the backend for the form of these layer weights, stacked or split."""
    if isinstance(layers, SplitLayers):
        return DecodeBackend(is_split=True, is_native=layers.is_native)
    return DecodeBackend()


def choose_cache_dtype(dtype: jax.typing.DTypeLike) -> jax.typing.DTypeLike:
    """Returns the storage type of a cache for keys and values of type `dtype`."""
    is_bits = get_platform() == "cpu" and jnp.dtype(dtype) == jnp.bfloat16
    return jnp.uint16 if is_bits else dtype  # models/bfloat16_bits.py gives the reason


def look_up(table_VD: jax.Array, tokens_BT: jax.Array) -> jax.Array:
    """Returns the embeddings of tokens, which are rows of the table: [B, T, D]."""
    if get_platform() == "cpu" and table_VD.dtype == jnp.bfloat16:
        # XLA converts the table to float32 before it reads rows. The barrier makes the table depend
        # on the tokens, so that XLA does not convert the whole table before a decode loop.
        table_VD, tokens_BT = jax.lax.optimization_barrier((table_VD, tokens_BT))
    return table_VD[tokens_BT]


@functools.partial(jax.jit, static_argnames="is_native")
def _split_layers(params: dict[str, Any], *, is_native: bool) -> dict[str, Any]:
    num_layers = jax.tree.leaves(params["layers"])[0].shape[0]
    trees = [jax.tree.map(lambda x, i=i: x[i], params["layers"]) for i in range(num_layers)]
    params = params | {"layers": tuple(trees)}
    if is_native:
        params = _convert_kernels(products.transposed, params)
    return params | {"layers": SplitLayers(params["layers"], is_native)}


@jax.jit
def _stack_layers(params: dict[str, Any]) -> dict[str, Any]:
    layers = params["layers"]
    params = params | {"layers": layers.trees}
    if layers.is_native:
        params = _convert_kernels(products.untransposed, params)
    return params | {"layers": jax.tree.map(lambda *x: jnp.stack(x), *params["layers"])}


def _convert_kernels(convert, params: dict[str, Any]) -> dict[str, Any]:
    def convert_leaf(path, x):
        name = path[-1].key
        return convert(_SPECS[name], x) if name in _SPECS else x

    return jax.tree.map_with_path(convert_leaf, params)
