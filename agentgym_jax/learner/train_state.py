"""What an optimiser step reads and writes, created and described with its shardings."""

import functools
from typing import Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from agentgym_jax.models.policy import Policy
from agentgym_jax.sharding import Layout


@flax.struct.dataclass
class TrainState:
    """One pytree; updates donate it.

    Attributes:
      step: int32 scalar, optimiser updates applied (skipped ones do not count).
      params: tree of float32 arrays.
      opt_state: of the optimiser.
      critic: the same of a critic, with its own count and optimiser; None without one.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    critic: "TrainState | None" = None


class Network(Protocol):
    """Whose parameters a state holds: `models.policy.Policy` or `models.critic.Critic`."""

    def abstract_params(self) -> Any:
        """Shapes and types of the parameters."""

    def logical_axes(self) -> Any:
        """Logical axis names of the parameters."""


def _new(optimizer: optax.GradientTransformation, params: Any) -> TrainState:
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def _like_parameters(tree: Any, params: Any, shardings: Any, replicated: Any) -> Any:
    """Shardings of any tree that holds copies of the parameter tree inside.

    A leaf whose path ends in the path of a parameter, with that parameter's shape, is its moment
    and lies where it lies; the rest (counters, coefficients) is on every device.
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
    network: Network, optimizer: optax.GradientTransformation, layout: Layout
) -> TrainState:
    """TrainState of shardings: moments lie where their parameter lies."""
    params = network.abstract_params()
    shardings = layout.tree_shardings(network.logical_axes(), params)
    replicated = jax.NamedSharding(layout.mesh, PartitionSpec())
    abstract = jax.eval_shape(functools.partial(_new, optimizer), params)
    return _like_parameters(abstract, params, shardings, replicated)


def abstract_state(
    network: Network, optimizer: optax.GradientTransformation, layout: Layout | None = None
) -> TrainState:
    """ShapeDtypeStruct of every array of the state, with shardings: what a restore asks for."""
    abstract = jax.eval_shape(functools.partial(_new, optimizer), network.abstract_params())
    if layout is None:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shardings = jax.tree.map(lambda _: here, abstract)
    else:
        shardings = state_shardings(network, optimizer, layout)
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
    """State before the first step.

    The state owns its arrays: `params` are copied (on the devices), because every update donates
    the state and a caller may keep the same weights as the reference policy.

    Args:
      network: whose parameters these are.
      optimizer: from `make_optimizer`.
      params: float32 parameters, on the host or on devices in any layout.
      layout: where the state goes; None is one device.
    """
    expected = jax.tree.map(lambda x: (x.shape, x.dtype), network.abstract_params())
    found = jax.tree.map(lambda x: (x.shape, jnp.dtype(x.dtype)), params)
    if expected != found:
        raise ValueError(_mismatch(network.abstract_params(), params))
    if layout is None:
        shardings = None
        params = jax.tree.map(jnp.array, params)  # a copy; the state must not alias the input
        return jax.jit(functools.partial(_new, optimizer), donate_argnums=0)(params)
    shardings = state_shardings(network, optimizer, layout)
    params = jax.tree.map(
        lambda x, s: jax.device_put(x, s, may_alias=False), params, shardings.params
    )
    return jax.jit(functools.partial(_new, optimizer), out_shardings=shardings, donate_argnums=0)(
        params
    )


def initialise(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    layout: Layout | None = None,
) -> TrainState:
    """State with random parameters, made in place on the shards."""
    shardings = None if layout is None else state_shardings(policy, optimizer, layout)
    return jax.jit(lambda key: _new(optimizer, policy.init(key)), out_shardings=shardings)(key)


def _mismatch(expected: Any, found: Any) -> str:
    """Names the first parameters that do not fit."""

    def describe(tree):
        flat, _ = jax.tree_util.tree_flatten_with_path(tree)
        return {
            jax.tree_util.keystr(p, simple=True, separator="/"): (x.shape, str(x.dtype))
            for p, x in flat
        }

    want, have = describe(expected), describe(found)
    wrong = sorted(k for k in want.keys() | have.keys() if want.get(k) != have.get(k))
    lines = [f"{k}: found {have.get(k)}, expected {want.get(k)}" for k in wrong[:5]]
    return "parameters do not fit the policy's config: " + "; ".join(lines)
