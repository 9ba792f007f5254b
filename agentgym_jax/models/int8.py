"""Int8 weights for decoding: kernels and output head with one float32 scale per output channel.

The cache uses `quantize_array` for its keys and values, too.

A decode step reads every weight once and is bound by these bytes. A product is (x @ values) * scale:
the values become the type of x inside the product, which therefore reads int8 from memory.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.einsum import KERNEL_SPECS
from agentgym_jax.models.lora import count_inputs

_LARGEST = 127.0
HEAD_SCALE = "head_scale"  # key of the scale of the output head, next to the parts of a decoder


@flax.struct.dataclass
class Int8Layers:
    """Int8 layer weights with their scales; takes the place of the layers in a tree of weights.

    Attributes:
      base: Weights of the layers, whose kernels are int8.
      scales: Scale of each kernel, `q_scale` for `q_kernel`: the kernel without its summed axes.
    """

    base: Any
    scales: Any


def quantize(params: dict[str, Any], dtype: jax.typing.DTypeLike) -> dict[str, Any]:
    """Returns float32 weights with int8 kernels and an int8 output head.

    The error of a weight is at most half of its scale. An embedding that is not the output head has
    the type `dtype`; norms and biases remain float32.
    """
    params = _map_kernels(params, _values, _scale)
    if "unembed" not in params:
        return params
    return params | {"embed": {"embedding": params["embed"]["embedding"].astype(dtype)}}


def quantized_axes(axes: dict[str, Any]) -> dict[str, Any]:
    """Returns the logical axes of the result of `quantize`, given those of the weights."""

    def remaining(axes: tuple[str, ...], summed: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(axis for i, axis in enumerate(axes) if i not in summed)

    return _map_kernels(axes, lambda axes, summed: axes, remaining)


def make_product(scales: Any, multiply: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns the function (kernel name, x, kernel) -> (x @ kernel) * scale of one layer.

    `multiply` computes the product in the type of x, in which every int8 value is exact.
    """
    by_name = {name: scale for part in scales.values() for name, scale in part.items()}

    def product(name: str, x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = multiply(name, x, kernel)
        scale = by_name[_scale_name(name)]
        return (y * scale[(None,) * (y.ndim - scale.ndim)]).astype(y.dtype)

    return product


def quantize_array(x: jax.Array, summed: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns the int8 values of an array, and a float32 scale for each index of its other axes."""
    x = x.astype(jnp.float32)
    return _values(x, summed), _scale(x, summed)


def _values(x: jax.Array, summed: tuple[int, ...]) -> jax.Array:
    scale = jnp.expand_dims(_scale(x, summed), summed)
    return jnp.round(x / scale).astype(jnp.int8)


def _scale(x: jax.Array, summed: tuple[int, ...]) -> jax.Array:
    largest = jnp.max(jnp.abs(x), axis=summed)
    return jnp.where(largest > 0, largest, 1.0) / _LARGEST  # a channel of zeros has any scale


def _map_kernels(params: dict[str, Any], values: Any, scale: Any) -> dict[str, Any]:
    """Returns the tree of `quantize`, whose leaves are functions of (weight, its summed axes)."""
    base: dict[str, Any] = {}
    scales: dict[str, Any] = {}
    for part, leaves in params["layers"].items():
        base[part] = dict(leaves)
        for name in leaves.keys() & KERNEL_SPECS.keys():
            summed = tuple(range(1, 1 + count_inputs(KERNEL_SPECS[name])))  # axis 0 are the layers
            base[part][name] = values(leaves[name], summed)
            scales.setdefault(part, {})[_scale_name(name)] = scale(leaves[name], summed)
    # The head is [D, V], or [V, D] if it is the embedding.
    part, name, summed = ("unembed", "kernel", (0,))
    if "unembed" not in params:
        part, name, summed = ("embed", "embedding", (1,))
    head = params[part][name]
    return params | {
        "layers": Int8Layers(base, scales),
        part: {name: values(head, summed)},
        HEAD_SCALE: scale(head, summed),
    }


@functools.cache
def _scale_name(kernel: str) -> str:
    return kernel.replace("_kernel", "_scale")
