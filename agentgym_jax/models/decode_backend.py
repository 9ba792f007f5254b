"""Hardware-dependent parts of decoding. The backend is chosen only here.

`DecodeBackend` works on every accelerator. `CPUBackend` replaces the operations that XLA compiles
badly on CPU: it stores each layer in separate arrays, uses native kernels, and stores caches as
bits.
"""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.attention import attend_cache
from agentgym_jax.models.einsum import KERNEL_SPECS, einsum
from agentgym_jax.native import attention as native_attention
from agentgym_jax.native import products
from agentgym_jax.sharding import Layout

_UNEMBED = "bd,dv->bv"


@dataclasses.dataclass(frozen=True)
class DecodeBackend:
    """Decoder operations for stacked weights, with XLA's products and a cache of floating-point
    numbers.
    """

    def prepare_params(self, params: dict[str, Any], num_layers: int) -> dict[str, Any]:
        """Returns the weights in the form that decoding reads fastest."""
        return params

    def restore_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Converts the result of `prepare_params` back."""
        return params

    def get_layer_template(self, layers: Any) -> Any:
        """Converts prepared layers to a tree with the structure of the stacked layers, which
        `Policy` merges with its graph.
        """
        return layers

    def choose_cache_dtype(self, dtype: jax.typing.DTypeLike) -> jax.typing.DTypeLike:
        """Returns the storage type of a cache for keys and values of type `dtype`."""
        return dtype

    def look_up(self, table_VD: jax.Array, tokens_BT: jax.Array) -> jax.Array:
        """Returns the embeddings of tokens, which are rows of the table: [B, T, D]."""
        return table_VD[tokens_BT]

    def multiply(
        self, spec: str, x: jax.Array, kernel: jax.Array, preferred_element_type: Any = None
    ) -> jax.Array:
        """Multiplies tokens with a kernel; `spec` is a value of `einsum.KERNEL_SPECS`."""
        return einsum(spec, x, kernel, preferred_element_type)

    def compute_logits(self, hidden: jax.Array, kernel: jax.Array, *, is_tied: bool) -> jax.Array:
        """Returns float32 logits [..., V] of hidden states [..., D].

        The head has axes [V, D] if it is tied to the embedding, and [D, V] otherwise.
        """
        rows = "abc"[: hidden.ndim - 1]
        spec = f"{rows}d,{'vd' if is_tied else 'dv'}->{rows}v"
        return self.multiply(spec, hidden, kernel.astype(hidden.dtype), jnp.float32)

    def attend(
        self,
        q_nTNH: jax.Array,
        k_LBKSH: jax.Array,
        v_LBKSH: jax.Array,
        layer: jax.Array | int,
        row_n: jax.Array,
        positions_nT: jax.Array,
        *,
        is_in_order: bool,
    ) -> jax.Array:
        """Computes attention to the cache with `attention.attend_cache`.

        `is_in_order` is True if row_n is 0, 1, ...
        """
        rows = None if is_in_order else row_n  # None saves the look-up of rows
        return attend_cache(q_nTNH, k_LBKSH, v_LBKSH, layer, rows, positions_nT)

    def apply_layers(self, step: Any, carry: Any, layers: Any) -> Any:
        """Applies `step(carry, (layer number, weights))` to every layer in order and returns the
        last carry.
        """
        num_layers = jax.tree.leaves(layers)[0].shape[0]
        return jax.lax.scan(step, carry, (jnp.arange(num_layers), layers))[0]


@flax.struct.dataclass
class SplitLayers:
    """Layer weights split into one tree per layer.

    A scan over stacked weights copies the weights of a layer before it uses them, unless the
    compiler reads them in place. On CPU the weights are copied, which takes most of the time of a
    decode step.

    Attributes:
      trees: One tree per layer: the stacked tree without its leading axis.
      is_native: True if the kernels, including an untied output head, have the layout of
        `products.transposed`. The functions of `native` then compute a decode step.
    """

    trees: tuple[Any, ...]
    is_native: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class CPUBackend(DecodeBackend):
    """Operations of a decoder on CPU.

    Attributes:
      is_split: True if the weights of each layer are stored in separate arrays.
      is_native: True if decode steps use the functions of `native`; needs `is_split`.
    """

    is_split: bool = False
    is_native: bool = False

    def prepare_params(self, params: dict[str, Any], num_layers: int) -> dict[str, Any]:
        """Returns the weights with split layers, if the backend splits them."""
        if not self.is_split:
            return params
        return _split_layers(params, num_layers=num_layers, is_native=self.is_native)

    def restore_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Converts the result of `prepare_params` back."""
        return _stack_layers(params) if self.is_split else params

    def get_layer_template(self, layers: Any) -> Any:
        """Returns the first layer's tree, which has the structure of the stacked layers."""
        return layers.trees[0] if self.is_split else layers

    def choose_cache_dtype(self, dtype: jax.typing.DTypeLike) -> jax.typing.DTypeLike:
        """Returns uint16 for bfloat16 (models/bfloat16_bits.py), otherwise `dtype`."""
        return jnp.uint16 if jnp.dtype(dtype) == jnp.bfloat16 else dtype

    def look_up(self, table_VD: jax.Array, tokens_BT: jax.Array) -> jax.Array:
        """Returns the embeddings of tokens, which are rows of the table."""
        if table_VD.dtype == jnp.bfloat16:
            # XLA converts the table to float32 before it reads rows. The barrier makes the table
            # depend on the tokens. Without the barrier, XLA would convert the whole table before a
            # decode loop.
            table_VD, tokens_BT = jax.lax.optimization_barrier((table_VD, tokens_BT))
        return table_VD[tokens_BT]

    def multiply(
        self, spec: str, x: jax.Array, kernel: jax.Array, preferred_element_type: Any = None
    ) -> jax.Array:
        """Multiplies tokens with a kernel in the layout of `prepare_params`."""
        product = products.einsum_transposed if self.is_native else einsum
        return product(spec, x, kernel, preferred_element_type)

    def compute_logits(self, hidden: jax.Array, kernel: jax.Array, *, is_tied: bool) -> jax.Array:
        """Returns float32 logits [..., V] of hidden states [..., D]."""
        # A native head is stored as [V, D], like the embedding; its einsum specification is that of
        # a [D, V] head.
        return super().compute_logits(hidden, kernel, is_tied=is_tied and not self.is_native)

    def attend(self, q_nTNH, k_LBKSH, v_LBKSH, layer, row_n, positions_nT, *, is_in_order):
        """Computes attention to the cache, with the native function where that function is faster."""
        if self.is_native and native_attention.is_fast(q_nTNH, k_LBKSH):
            out_nNH = native_attention.attend_step(
                q_nTNH[:, 0], k_LBKSH, v_LBKSH, layer, row_n, positions_nT[:, 0]
            )
            return out_nNH[:, None]
        return super().attend(
            q_nTNH, k_LBKSH, v_LBKSH, layer, row_n, positions_nT, is_in_order=is_in_order
        )

    def apply_layers(self, step: Any, carry: Any, layers: Any) -> Any:
        """Applies `step(carry, (layer number, weights))` to every layer in order and returns the
        last carry.
        """
        if not self.is_split:
            return super().apply_layers(step, carry, layers)
        for number_and_weights in enumerate(layers.trees):
            carry, _ = step(carry, number_and_weights)
        return carry


@functools.partial(jax.jit, static_argnames=("num_layers", "is_native"))
def _split_layers(params: dict[str, Any], *, num_layers: int, is_native: bool) -> dict[str, Any]:
    convert = products.transposed if is_native else _keep
    layers = [jax.tree.map(lambda x, i=i: x[i], params["layers"]) for i in range(num_layers)]
    trees = tuple(_convert_kernels(convert, layer) for layer in layers)
    return _convert_unembed(convert, params) | {"layers": SplitLayers(trees, is_native)}


@jax.jit
def _stack_layers(params: dict[str, Any]) -> dict[str, Any]:
    layers = params["layers"]
    convert = products.untransposed if layers.is_native else _keep
    trees = [_convert_kernels(convert, layer) for layer in layers.trees]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *trees)
    return _convert_unembed(convert, params) | {"layers": stacked}


def _keep(spec: str, kernel: jax.Array) -> jax.Array:
    return kernel


def _convert_kernels(convert, layer):
    def convert_leaf(path, x):
        spec = KERNEL_SPECS.get(path[-1].key)
        return x if spec is None else convert(spec, x)

    return jax.tree.map_with_path(convert_leaf, layer)


def _convert_unembed(convert, params):
    if "unembed" not in params:
        return params
    kernel = convert(_UNEMBED, params["unembed"]["kernel"])
    return params | {"unembed": params["unembed"] | {"kernel": kernel}}


def choose_backend(
    num_rows: int, dtype: jax.typing.DTypeLike, layout: Layout | None
) -> DecodeBackend:
    """Returns the fastest backend for decode steps of `num_rows` rows on this machine."""
    if jax.default_backend() != "cpu":
        return DecodeBackend()
    is_split = layout is None
    return CPUBackend(is_split, is_native=is_split and products.is_for(num_rows, dtype))


def get_backend(layers: Any = None) -> DecodeBackend:
    """Returns the backend for layer weights that are stacked, None, or prepared by a backend."""
    if isinstance(layers, SplitLayers):
        return CPUBackend(is_split=True, is_native=layers.is_native)
    return CPUBackend() if jax.default_backend() == "cpu" else DecodeBackend()
