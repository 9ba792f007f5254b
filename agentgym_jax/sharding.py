"""Device mesh, placement of logical axes on mesh axes, and resharding of weights."""

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from agentgym_jax.limits import Range

MESH_AXES = ("data", "fsdp", "tensor")

MeshAxes = str | tuple[str, ...] | None

# The first seven axes are those of weights, the others those of activations and caches. `embed` is
# split over fsdp and gathered layer by layer.
TRAIN_RULES: Mapping[str, MeshAxes] = {
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "head": None,
    "mlp": "tensor",
    "layers": None,
    "batch": ("data", "fsdp"),
    "length": None,
    "act_embed": None,
    # Each device computes the logits of a part of the vocabulary, for the rows of all fsdp shards.
    "head_vocab": ("fsdp", "tensor"),
    "head_batch": "data",
    "act_heads": "tensor",
    "act_kv_heads": "tensor",
    "act_head": None,
    "act_mlp": "tensor",
}

# Decoding reads every weight once per token, so gathering over fsdp would be slow.
DECODE_RULES: Mapping[str, MeshAxes] = {**TRAIN_RULES, "embed": None}


_platform: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)


def get_platform() -> str:
    """Returns the platform for which programs are traced: `cpu`, `tpu` or `gpu`."""
    return _platform.get() or jax.default_backend()


@contextlib.contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """Traces programs for a platform that may be absent from this machine."""
    token = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(token)


def make_mesh(
    *,
    data: Annotated[int, Range(-1)],
    fsdp: Annotated[int, Range(-1)],
    tensor: Annotated[int, Range(-1)],
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Makes a mesh with the axes `data`, `fsdp` and `tensor`, in this order.

    Args:
      data: Number of replicas of the weights. One of the three sizes may be -1 (all other devices).
      fsdp: Number of shards of weights and rows.
      tensor: Number of shards inside a layer.
      devices: Devices of the mesh; None takes all.
    """
    devices = jax.devices() if devices is None else list(devices)
    sizes = dict(zip(MESH_AXES, (data, fsdp, tensor), strict=True))
    described = ", ".join(f"{name}={size}" for name, size in sizes.items())
    free = [name for name, size in sizes.items() if size == -1]
    if len(free) > 1 or any(size < 1 and size != -1 for size in sizes.values()):
        raise ValueError(
            f"mesh {described}: sizes must be positive, at most one may be -1 (the rest)"
        )
    fixed = math.prod(size for size in sizes.values() if size != -1)
    if free and len(devices) % fixed == 0:
        sizes[free[0]] = len(devices) // fixed
    if math.prod(sizes.values()) != len(devices):
        raise ValueError(
            f"mesh {described} does not fit {len(devices)} {devices[0].platform} devices: "
            f"the product must be {len(devices)}. Change config.mesh or set one size to -1."
        )
    return jax.make_mesh(
        tuple(sizes.values()), MESH_AXES, axis_types=(AxisType.Auto,) * 3, devices=devices
    )


@dataclasses.dataclass(frozen=True)
class Layout:
    """Placement of every logical axis on mesh axes; None for an axis that is not split."""

    mesh: Mesh
    rules: Mapping[str, MeshAxes] = dataclasses.field(hash=False)

    def __post_init__(self):
        for axis, target in self.rules.items():
            unknown = set(_as_tuple(target)) - set(self.mesh.axis_names)
            if unknown:
                raise ValueError(
                    f"layout rule {axis!r} -> {target!r}: the mesh has axes "
                    f"{self.mesh.axis_names}, not {sorted(unknown)}"
                )

    def shards(self, axis: str) -> int:
        """Returns the number of parts into which a logical axis is split."""
        return math.prod(self.mesh.shape[name] for name in self._mesh_axes(axis))

    def sharding(
        self, axes: Sequence[str | None], shape: Sequence[int] | None = None
    ) -> NamedSharding:
        """Returns the sharding of an array, given its logical axes; None for an unsplit axis.

        If `shape` is given, an axis is not split if its length is not divisible by the size of its
        mesh axes (for example 2 key/value heads on tensor=4).
        """
        owner: dict[str, str] = {}
        spec = []
        for i, axis in enumerate(axes):
            names = () if axis is None else self._mesh_axes(axis)
            for name in names:
                if name in owner:
                    raise ValueError(
                        f"layout: axes {tuple(axes)} put both {owner[name]!r} and {axis!r} on "
                        f"mesh axis {name!r}; change one rule"
                    )
                owner[name] = str(axis)
            if shape is not None and shape[i] % math.prod(self.mesh.shape[n] for n in names):
                names = ()
            spec.append(names if len(names) > 1 else names[0] if names else None)
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def tree_shardings(self, logical_tree: Any, abstract_tree: Any) -> Any:
        """Returns the shardings of a tree of arrays, given the tree of their logical axes."""
        return jax.tree.map(
            lambda axes, x: self.sharding(axes, x.shape),
            logical_tree,
            abstract_tree,
            is_leaf=lambda node: isinstance(node, tuple),
        )

    def _mesh_axes(self, axis: str) -> tuple[str, ...]:
        if axis not in self.rules:
            raise ValueError(
                f"layout: no rule for logical axis {axis!r}; the table has {sorted(self.rules)}"
            )
        return _as_tuple(self.rules[axis])


def constrain_rows(layout: Layout | None, batch: Any) -> Any:
    """Applies `constrain` to every array [B, T] of a packed batch."""
    return jax.tree.map(lambda x: constrain(layout, x, ("batch", "length")), batch)


def constrain(layout: Layout | None, x: jax.Array, axes: Sequence[str | None]) -> jax.Array:
    """Constrains the sharding of a value inside jit; does nothing without a layout."""
    if layout is None:
        return x
    if len(axes) != x.ndim:
        raise ValueError(f"layout: {len(axes)} axes {tuple(axes)} for an array {x.shape}")
    return jax.lax.with_sharding_constraint(x, layout.sharding(axes, x.shape))


def _as_tuple(target: MeshAxes) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else tuple(target or ())


def _cast(params: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype), params)


def reshard(params: Any, shardings: Any, dtype: Any) -> Any:
    """Converts weights to another layout and type on the devices; compiles once per layout.

    `shardings` is a tree of shardings on the same devices; None leaves the choice to the compiler.
    """
    return make_reshard(shardings)(params, jnp.dtype(dtype))


def make_reshard(shardings: Any) -> Any:
    """Returns the program of `reshard`: (weights, type) -> weights."""
    return jax.jit(_cast, static_argnums=1, out_shardings=shardings)
