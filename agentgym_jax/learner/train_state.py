"""Training state, which optimiser steps read and write; its creation and its shardings."""

import functools
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models.critic import Critic
from agentgym_jax.models.lora import Adapters
from agentgym_jax.models.policy import Params, Policy

Network = Policy | Critic | Adapters


@flax.struct.dataclass
class TrainState:
    """Parameters and optimiser state as one pytree, which every update donates."""

    step: jax.Array  # int32 scalar, number of applied optimiser updates
    params: Params  # float32: all weights, or adapters of frozen weights
    opt_state: Any  # state of the optimiser
    critic: "TrainState | None" = None  # state of the critic, if there is one


def _new(optimizer: optax.GradientTransformation, params: Params) -> TrainState:
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def _like_parameters(
    tree: TrainState, params: Params, logical_axes: Params, layout: Layout
) -> TrainState:
    """Returns shardings for a tree that contains copies of the parameter tree, such as moments.

    A leaf whose path ends with the path of a parameter with the same number of axes is sharded like
    this parameter. Scales of blocks have such a path, too. Other leaves are replicated.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(params)
    axes = jax.tree.leaves(logical_axes, is_leaf=lambda node: isinstance(node, tuple))
    by_path = {path: axes for (path, _), axes in zip(flat, axes, strict=True)}

    def find(path, leaf):
        for start in range(len(path)):
            axes = by_path.get(path[start:])
            if axes is not None and len(axes) == leaf.ndim:
                return layout.sharding(axes, leaf.shape)
        return jax.NamedSharding(layout.mesh, PartitionSpec())

    return jax.tree_util.tree_map_with_path(find, tree)


def state_shardings(
    network: Network, optimizer: optax.GradientTransformation, layout: Layout | None
) -> TrainState | None:
    """Returns a TrainState of shardings; None without a layout."""
    if layout is None:
        return None
    params = network.abstract_params()
    abstract = jax.eval_shape(functools.partial(_new, optimizer), params)
    return _like_parameters(abstract, params, network.logical_axes(), layout)


def abstract_state(
    network: Network, optimizer: optax.GradientTransformation, layout: Layout | None = None
) -> TrainState:
    """Returns a TrainState of ShapeDtypeStructs with shardings, the target of a restore."""
    abstract = jax.eval_shape(functools.partial(_new, optimizer), network.abstract_params())
    shardings = state_shardings(network, optimizer, layout)
    if shardings is None:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        return jax.tree.map(lambda x: x.update(sharding=here), abstract)
    return jax.tree.map(lambda x, sharding: x.update(sharding=sharding), abstract, shardings)


def create(
    network: Network,
    optimizer: optax.GradientTransformation,
    params: Params,
    layout: Layout | None = None,
) -> TrainState:
    """Creates the state before the first step from float32 parameters on the host or on devices.

    The parameters are copied, because every update donates the state and a caller may keep the same
    weights as the reference policy.
    """
    expected = describe_arrays(network.abstract_params())
    wrong = list_differences(describe_arrays(params), expected, "found")
    if wrong:
        raise ValueError("parameters do not fit the policy's config: " + "; ".join(wrong[:5]))
    shardings = state_shardings(network, optimizer, layout)
    params = jax.device_put(params, shardings and shardings.params, may_alias=False)
    new = jax.jit(functools.partial(_new, optimizer), out_shardings=shardings, donate_argnums=0)
    return new(params)


def describe_arrays(tree: Any) -> dict[str, str]:
    """Returns type and shape of every array, such as `float32[2,16]`, by the path of the array."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): (
            f"{x.dtype}[{','.join(map(str, x.shape))}]"
        )
        for path, x in flat
    }


def list_differences(found: Mapping[str, str], expected: Mapping[str, str], verb: str) -> list[str]:
    """Describes the differences between two results of `describe_arrays`, parameters first."""
    names = [k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k)]
    names.sort(key=lambda k: (not k.startswith("params"), k))
    return [f"{k}: {verb} {found.get(k)}, expected {expected.get(k)}" for k in names]
