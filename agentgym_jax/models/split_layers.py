"""Weights as decoding on CPU reads them best."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.native import products

# The product of each kernel with the tokens.
PRODUCTS = {
    "q_kernel": "btd,dnh->btnh",
    "k_kernel": "btd,dnh->btnh",
    "v_kernel": "btd,dnh->btnh",
    "o_kernel": "btnh,nhd->btd",
    "gate_kernel": "btd,df->btf",
    "up_kernel": "btd,df->btf",
    "down_kernel": "btf,fd->btd",
}
_UNEMBED = "bd,dv->bv"


@flax.struct.dataclass
class SplitLayers:
    """The weights of every layer in arrays of their own.

    A scan over stacked weights copies those of a layer before it computes with them, where the
    compiler does not read them in place: on CPU, where a decode step does little else.

    Attributes:
      of: a tree for each layer, that of the stacked ones without their leading axis.
      is_native: all kernels are `products.transposed`, the untied head's too, and a decode step is
        computed by `native`.
    """

    of: tuple[Any, ...]
    is_native: bool = flax.struct.field(pytree_node=False)


def split(params: dict[str, Any], num_layers: int, *, is_native: bool) -> dict[str, Any]:
    """The weights with `layers` a SplitLayers."""
    turn = products.transposed if is_native else _as_it_is
    layers = [jax.tree.map(lambda x, i=i: x[i], params["layers"]) for i in range(num_layers)]
    of = tuple(_turn_kernels(turn, layer) for layer in layers)
    return _turn_unembed(turn, params) | {"layers": SplitLayers(of, is_native)}


def stack(params: dict[str, Any]) -> dict[str, Any]:
    """Undoes `split`."""
    layers = params["layers"]
    turn = products.untransposed if layers.is_native else _as_it_is
    of = [_turn_kernels(turn, layer) for layer in layers.of]
    return _turn_unembed(turn, params) | {"layers": jax.tree.map(lambda *x: jnp.stack(x), *of)}


def _as_it_is(spec: str, kernel: jax.Array) -> jax.Array:
    return kernel


def _turn_kernels(turn, layer):
    def one(path, x):
        spec = PRODUCTS.get(path[-1].key)
        return x if spec is None else turn(spec, x)

    return jax.tree.map_with_path(one, layer)


def _turn_unembed(turn, params):
    if "unembed" not in params:
        return params
    kernel = turn(_UNEMBED, params["unembed"]["kernel"])
    return params | {"unembed": params["unembed"] | {"kernel": kernel}}
