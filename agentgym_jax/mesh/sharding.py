"""Device mesh, placement of logical axes on mesh axes, and resharding of weights.

The learner's mesh has the devices of all processes. Each process decodes on a mesh of its own
devices.
"""

import contextlib
import contextvars
import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from agentgym_jax.checks.limits import Range

MESH_AXES = ("data", "fsdp", "tensor")

MeshAxes = str | tuple[str, ...] | None

# The first eight axes are those of weights, the others those of activations and caches. `embed` is
# split over fsdp and gathered layer by layer.
TRAIN_RULES: Mapping[str, MeshAxes] = {
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "head": None,
    "mlp": "tensor",
    "layers": None,
    "rank": None,
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


# Held while a program starts. Two threads that start programs at the same time could otherwise start
# them in a different order on each device, and their collectives would wait for each other.
launch_lock = threading.RLock()

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
    """Makes a mesh with the axes `data`, `fsdp` and `tensor`; arguments as of `make_layouts`."""
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
    shape, types = tuple(sizes.values()), (AxisType.Auto,) * 3
    if len({device.process_index for device in devices}) == 1:
        return jax.make_mesh(shape, MESH_AXES, axis_types=types, devices=devices)
    # The devices of a process are adjacent, so that its decode mesh is a part of this mesh.
    devices = sorted(devices, key=lambda device: (device.process_index, device.id))
    return Mesh(np.asarray(devices).reshape(shape), MESH_AXES, axis_types=types)


def make_layouts(
    *,
    data: Annotated[int, Range(-1)],
    fsdp: Annotated[int, Range(-1)],
    tensor: Annotated[int, Range(-1)],
    decode_tensor: Annotated[int, Range(0)],
    devices: Sequence[jax.Device] | None = None,
    process_index: int | None = None,
) -> "tuple[Layout | None, Layout | None]":
    """Makes the layouts of the learner and of the sampler of a process; None for one device.

    Args:
      data: Number of replicas of the weights. One of the three sizes may be -1 (all other devices).
      fsdp: Number of shards of weights and rows.
      tensor: Number of shards inside a layer.
      decode_tensor: Number of shards inside a layer while decoding, among the devices of one
        process; 0 for the value of `tensor`.
      devices: Devices of all processes; None takes all.
      process_index: Process of the sampler; None for this process.
    """
    mesh = make_mesh(data=data, fsdp=fsdp, tensor=tensor, devices=devices)
    if mesh.size == 1:
        return None, None
    process_index = jax.process_index() if process_index is None else process_index
    local = [d for d in mesh.devices.flat if d.process_index == process_index]
    inside = decode_tensor or mesh.shape["tensor"]
    if len(local) % inside:
        name = "decode_tensor" if decode_tensor else "tensor"
        raise ValueError(
            f"mesh {name}={inside} does not divide the {len(local)} devices of a process, on which "
            f"it decodes: set decode_tensor to a divisor of {len(local)}"
        )
    decode_mesh = mesh
    if len(local) < mesh.size or inside != mesh.shape["tensor"]:
        grid = np.asarray(local).reshape(1, -1, inside)
        decode_mesh = Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * 3)
    return Layout(mesh, TRAIN_RULES), Layout(decode_mesh, DECODE_RULES)


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

        The form is the one in which XLA reports shardings: without mesh axes of size 1 and without
        unsplit axes at the end. A program whose output is its next input then compiles once.
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
            names = tuple(name for name in names if self.mesh.shape[name] > 1)
            if shape is not None and shape[i] % math.prod(self.mesh.shape[n] for n in names):
                names = ()
            spec.append(names if len(names) > 1 else names[0] if names else None)
        while spec and spec[-1] is None:
            spec.pop()
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
    """Applies `constrain` to every array [B, T] of a packed batch, and to masks [B, K, W]."""
    axes = {2: ("batch", "length"), 3: ("batch", None, None)}
    return jax.tree.map(lambda x: constrain(layout, x, axes[x.ndim]), batch)


def constrain(layout: Layout | None, x: jax.Array, axes: Sequence[str | None]) -> jax.Array:
    """Constrains the sharding of a value inside jit; does nothing without a layout."""
    if layout is None:
        return x
    if len(axes) != x.ndim:
        raise ValueError(f"layout: {len(axes)} axes {tuple(axes)} for an array {x.shape}")
    return jax.lax.with_sharding_constraint(x, layout.sharding(axes, x.shape))


def _as_tuple(target: MeshAxes) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else tuple(target or ())


def put(x: Any, sharding: NamedSharding | None) -> jax.Array:
    """Copies a host array, which is the same in all processes, to the devices of a sharding.

    None selects the default device.
    """
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def to_host(tree: Any) -> Any:
    """Returns the arrays of a tree as NumPy arrays, the same in all processes."""

    def get(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
            return x
        with launch_lock:
            return multihost_utils.process_allgather(x, tiled=True)

    return jax.device_get(jax.tree.map(get, tree))


def _cast(params: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype), params)


def reshard(params: Any, shardings: Any, dtype: Any) -> Any:
    """Converts weights to another layout and type on the devices; compiles once per layout.

    `shardings` is a tree of shardings on the same devices; None leaves the choice to the compiler.
    """
    convert = jax.jit(_cast, static_argnums=1, out_shardings=shardings)
    return convert(params, jnp.dtype(dtype))


def spread_layout(layout: Layout, decode_layout: Layout) -> Layout:
    """Returns a layout on all devices in which every process has all weights of the sampler.

    Each process splits them like `decode_layout`.
    """
    if decode_layout.mesh.size == layout.mesh.size:
        return decode_layout
    grid = layout.mesh.devices.reshape(-1, *decode_layout.mesh.devices.shape[1:])
    mesh = Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * 3)
    return Layout(mesh, decode_layout.rules)


def rewrap(tree: Any, shardings: Any) -> Any:
    """Returns arrays with other shardings whose shards on this process are the same, uncopied."""

    def one(x: jax.Array, sharding: NamedSharding) -> jax.Array:
        shards = {shard.device: shard.data for shard in x.addressable_shards}
        own = [shards[device] for device in sharding.addressable_devices]
        return jax.make_array_from_single_device_arrays(x.shape, sharding, own)

    return jax.tree.map(one, tree, shardings)
