"""Low-rank adapters of frozen kernels (LoRA, arXiv:2106.09685).

The adapter of a kernel W adds scale * (x @ A) @ B to x @ W, with scale = alpha / rank. A has the
input axes of W and the rank, B the rank and the output axes. The adapters of a decoder are a separate
tree, with the names of its modules.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.einsum import KERNEL_SPECS, einsum, einsum_frozen

Params = dict[str, Any]  # nested dicts of arrays

TARGETS = tuple(name.removesuffix("_kernel") for name in KERNEL_SPECS)


@flax.struct.dataclass
class AdaptedLayers:
    """Frozen layer weights with their adapters; takes the place of the layers in a tree of weights.

    Attributes:
      base: Weights of the layers.
      adapters: Adapters of the layers, or a `WithGradientSum` of them.
      scale: Factor of the adapters.
    """

    base: Any
    adapters: Any
    scale: float = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Adapters of a decoder as pure functions, with the interface of `Policy` for its weights.

    Attributes:
      shapes: Shapes of the decoder's weights (`Policy.abstract_params`).
      axes: Logical axes of the decoder's weights (`Policy.logical_axes`).
      rank: Inner size of every adapter.
      alpha: Scale of the adapters times the rank.
      targets: Names of the adapted kernels, from TARGETS.
    """

    shapes: Params = dataclasses.field(hash=False)
    axes: Params = dataclasses.field(hash=False)
    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def scale(self) -> float:
        """Returns the factor of the adapters."""
        return self.alpha / self.rank

    @property
    def num_parameters(self) -> int:
        """Returns the number of trained weights."""
        return sum(x.size for x in jax.tree.leaves(self.abstract_params()))

    def abstract_params(self) -> Params:
        """Returns shapes and types of the adapters, as a tree of jax.ShapeDtypeStruct."""
        found = {}
        for path, spec in self._kernels():
            L, *kernel = flatten_dict(self.shapes)[path].shape
            inputs = count_inputs(spec)
            shapes = (L, *kernel[:inputs], self.rank), (L, self.rank, *kernel[inputs:])
            for side, shape in zip("ab", shapes, strict=True):
                found[adapter_path(path, side)] = jax.ShapeDtypeStruct(shape, jnp.float32)
        return unflatten_dict(found)

    def logical_axes(self) -> Params:
        """Returns logical axis names of the adapters, as a tree of tuples."""
        found = {}
        for path, spec in self._kernels():
            layers, *kernel = flatten_dict(self.axes)[path]
            inputs = count_inputs(spec)
            found[adapter_path(path, "a")] = (layers, *kernel[:inputs], "rank")
            found[adapter_path(path, "b")] = (layers, "rank", *kernel[inputs:])
        return unflatten_dict(found)

    def param_shardings(self, layout: Layout | None) -> Params | None:
        """Returns the shardings of the adapters in a layout; None without a layout."""
        if layout is None:
            return None
        return layout.tree_shardings(self.logical_axes(), self.abstract_params())

    def init(self, key: jax.Array) -> Params:
        """Returns new adapters, which change nothing: A is uniform(1 / sqrt(inputs)), B is 0."""
        found = {}
        for path, x in flatten_dict(self.abstract_params()).items():
            if path[-1].endswith("_b"):
                found[path] = jnp.zeros(x.shape, x.dtype)
                continue
            key, own = jax.random.split(key)
            bound = math.prod(x.shape[1:-1]) ** -0.5
            found[path] = jax.random.uniform(own, x.shape, x.dtype, -bound, bound)
        return unflatten_dict(found)

    def init_sharded(self, key: jax.Array, layout: Layout | None) -> Params:
        """Returns the adapters of `init`; each device computes only its shards."""
        return jax.jit(self.init, out_shardings=self.param_shardings(layout))(key)

    def attach(self, base: Params, adapters: Params) -> Params:
        """Returns weights of the decoder with adapters; no array is copied."""
        return base | {"layers": AdaptedLayers(base["layers"], adapters["layers"], self.scale)}

    def _kernels(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the path in the decoder's weights and the specification of each adapted kernel."""
        for path in flatten_dict(self.shapes):
            if path[-1] in KERNEL_SPECS and path[-1].removesuffix("_kernel") in self.targets:
                yield path, KERNEL_SPECS[path[-1]]


def attach(adapters: Adapters | None, base: Params | None, trained: Params) -> Params:
    """Returns weights of the decoder, given those that are trained: adapters, or all weights."""
    if adapters is None:
        return trained
    assert base is not None, "adapters have a base"
    return adapters.attach(base, trained)


def adapter_path(kernel_path: tuple[str, ...], side: str) -> tuple[str, ...]:
    """Returns the path of A (side `a`) or B (side `b`) of a kernel."""
    return (*kernel_path[:-1], f"{kernel_path[-1].removesuffix('_kernel')}_lora_{side}")


def is_adapter(name: str) -> bool:
    """Returns True for the name of a matrix of an adapter."""
    return name.endswith(("_lora_a", "_lora_b"))


def merge(params: Params, dtype: Any = None) -> Params:
    """Returns plain weights, W + scale * A @ B, computed in float32.

    Weights without adapters keep their values. `dtype` is the type of the result; None keeps the
    types of the weights.
    """
    layers = params["layers"]
    if isinstance(layers, AdaptedLayers):
        adapters, base = flatten_dict(layers.adapters), flatten_dict(layers.base)
        for path, kernel in base.items():
            a = adapters.get(adapter_path(path, "a"))
            if a is None:
                continue
            b, L, r = adapters[adapter_path(path, "b")], a.shape[0], a.shape[-1]
            delta = jnp.einsum("lir,lro->lio", a.reshape(L, -1, r), b.reshape(L, r, -1))
            merged = kernel.astype(jnp.float32) + layers.scale * delta.reshape(kernel.shape)
            base[path] = merged.astype(kernel.dtype if dtype is None else dtype)
        params = params | {"layers": unflatten_dict(base)}
    return params if dtype is None else jax.tree.map(lambda x: x.astype(dtype), params)


def make_product(adapters: Any, scale: float, base_product: Any = None) -> Any:
    """Returns the function (kernel name, x, kernel) -> x @ W + scale * (x @ A) @ B of one layer.

    `base_product` computes x @ W, by default without a gradient of W. Kernels without an adapter
    are products with W alone.
    """
    by_name = {path[-1]: matrix for path, matrix in flatten_dict(adapters).items()}
    multiply = base_product or (lambda name, x, w: einsum_frozen(KERNEL_SPECS[name], x, w))

    def product(name: str, x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = multiply(name, x, kernel)
        short = name.removesuffix("_kernel")
        if f"{short}_lora_a" not in by_name:
            return y
        a, b = (by_name[f"{short}_lora_{side}"].astype(x.dtype) for side in "ab")
        down, up = _thin_specs(KERNEL_SPECS[name])
        return y + (scale * _thin_product(up, _thin_product(down, x, a), b)).astype(y.dtype)

    return product


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _thin_product(spec: str, x: jax.Array, matrix: jax.Array) -> jax.Array:
    """Computes `einsum(spec, x, matrix)` for A or B, with a gradient that transposes a narrow array.

    XLA on CPU transposes the left operand of the product that gives the gradient of a matrix. JAX
    puts the array with the width of the model there, and XLA computes the activation function again
    for that copy. This takes 30 % of the time of an update of the 0.5B shape on 2 cores.
    """
    return einsum(spec, x, matrix)


def _thin_forward(spec, x, matrix):
    return einsum(spec, x, matrix), (x, matrix)


def _thin_backward(spec, saved, d_y):
    x, matrix = saved
    x_axes, matrix_axes, y_axes = spec.replace("->", ",").split(",")
    d_y = d_y.astype(x.dtype)
    d_x = einsum(f"{y_axes},{matrix_axes}->{x_axes}", d_y, matrix)
    if x_axes.endswith("r"):  # B: the result of x @ A is the narrow array
        return d_x, einsum(f"{x_axes},{y_axes}->{matrix_axes}", x, d_y)
    transposed = einsum(f"{y_axes},{x_axes}->r{matrix_axes[:-1]}", d_y, x)
    return d_x, jnp.moveaxis(transposed, 0, -1)


_thin_product.defvjp(_thin_forward, _thin_backward)


@functools.cache
def count_inputs(spec: str) -> int:
    """Returns the number of input axes of a kernel."""
    _, kernel, out = spec.replace("->", ",").split(",")
    return sum(axis not in out for axis in kernel)


@functools.cache
def _thin_specs(spec: str) -> tuple[str, str]:
    """Returns the specifications of x @ A and of (x @ A) @ B; r is the rank."""
    x, kernel, out = spec.replace("->", ",").split(",")
    inputs = kernel[: count_inputs(spec)]
    outputs = kernel[count_inputs(spec) :]
    return f"{x},{inputs}r->btr", f"btr,r{outputs}->{out}"
