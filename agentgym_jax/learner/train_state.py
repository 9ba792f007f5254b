"""State that an optimiser step reads and writes, its creation, and its shardings."""

import functools
from typing import Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from agentgym_jax.sharding import Layout


@flax.struct.dataclass
class TrainState:
    """State of training as one pytree; updates donate it.

    Attributes:
      step: int32 scalar, number of applied optimiser updates; skipped updates are not counted.
      params: Tree of float32 arrays.
      opt_state: State of the optimiser.
      critic: State of the critic, with a separate count and optimiser; None without a critic.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    critic: "TrainState | None" = None


class Network(Protocol):
    """Network whose parameters are in a state: `models.policy.Policy` or `models.critic.Critic`."""

    def abstract_params(self) -> Any:
        """Returns the shapes and types of the parameters."""

    def logical_axes(self) -> Any:
        """Returns the logical axis names of the parameters."""


def _new(optimizer: optax.GradientTransformation, params: Any) -> TrainState:
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def _like_parameters(tree: Any, params: Any, shardings: Any, replicated: Any) -> Any:
    """Returns shardings for any tree that contains copies of the parameter tree, such as moments.

    A leaf is a moment of a parameter if its path ends in the parameter's path and both have the
    same shape. It gets the parameter's sharding. Other leaves (counters, coefficients) are
    replicated on every device.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(params)
    by_path = {
        path: (leaf.shape, sharding)
        for (path, leaf), sharding in zip(flat, jax.tree.leaves(shardings), strict=True)
    }

    def find(path, leaf):
        for start in range(len(path)):
            shape, sharding = by_path.get(path[start:], (None, None))
            if shape == leaf.shape:
                return sharding
        return replicated

    return jax.tree_util.tree_map_with_path(find, tree)


def state_shardings(
    network: Network, optimizer: optax.GradientTransformation, layout: Layout | None
) -> TrainState | None:
    """Returns a TrainState of shardings, in which moments have the sharding of their parameter.

    Returns None without a layout.
    """
    if layout is None:
        return None
    params = network.abstract_params()
    shardings = layout.tree_shardings(network.logical_axes(), params)
    replicated = jax.NamedSharding(layout.mesh, PartitionSpec())
    abstract = jax.eval_shape(functools.partial(_new, optimizer), params)
    return _like_parameters(abstract, params, shardings, replicated)


def abstract_state(
    network: Network, optimizer: optax.GradientTransformation, layout: Layout | None = None
) -> TrainState:
    """Returns a ShapeDtypeStruct with sharding for every array of the state; serves as the target
    of a restore.
    """
    abstract = jax.eval_shape(functools.partial(_new, optimizer), network.abstract_params())
    shardings = state_shardings(network, optimizer, layout)
    if shardings is None:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shardings = jax.tree.map(lambda _: here, abstract)
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        abstract,
        shardings,
    )


def create(
    network: Network,
    optimizer: optax.GradientTransformation,
    params: Any,
    layout: Layout | None = None,
) -> TrainState:
    """Creates the state before the first step.

    `params` are copied on the devices, because every update donates the state and a caller may keep
    the same weights as the reference policy. The parameters are float32, on the host or on devices
    in any layout.
    """
    want, have = describe_arrays(network.abstract_params()), describe_arrays(params)
    wrong = sorted(k for k in want.keys() | have.keys() if want.get(k) != have.get(k))
    if wrong:
        lines = [f"{k}: found {have.get(k)}, expected {want.get(k)}" for k in wrong[:5]]
        raise ValueError("parameters do not fit the policy's config: " + "; ".join(lines))
    shardings = state_shardings(network, optimizer, layout)
    if shardings is None:
        params = jax.tree.map(jnp.array, params)
    else:
        params = jax.tree.map(
            lambda x, s: jax.device_put(x, s, may_alias=False), params, shardings.params
        )
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
