"""Accelerators that a plan can compile for, with their limits."""

import contextlib
import dataclasses
import functools
import importlib.util
import math
import os
import pathlib
import re
from collections.abc import Sequence

import jax
from jax.experimental import topologies

_GIB = 2**30
INSTALL = 'pip install -e ".[plan]"'
INSTALL_GPU = 'pip install -e ".[cuda]"'  # 5 GB; it needs no GPU


class PlanError(ValueError):
    """A topology is unknown, or a config does not fit it."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """Limits of one chip, from the vendors' data sheets.

    Attributes:
      name: Name of the chip on the command line.
      memory: Usable HBM, in bytes.
      memory_bandwidth: HBM bandwidth, in bytes per second.
      flops: Peak rate of bfloat16 matrix products, in FLOP per second.
      link_bandwidth: Bandwidth to all other chips of the slice in one direction, in bytes per
        second.
      host_shape: Shape of the chips of a host in a slice of several hosts; empty if all chips have
        the same host.
    """

    name: str
    memory: float
    memory_bandwidth: float
    flops: float
    link_bandwidth: float
    host_shape: str


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", 15.75 * _GIB, 819e9, 197e12, 100e9, "2x2"),
        Chip("v5p", 95.74 * _GIB, 2765e9, 459e12, 300e9, "2x2x1"),
        Chip("v6e", 31.25 * _GIB, 1640e9, 918e12, 224e9, "2x2"),
        Chip("h100", 79.1 * _GIB, 3352e9, 989e12, 450e9, ""),
    )
}

# Compilation for a device that is absent must not look for a TPU on this machine.
_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice of chips.

    Attributes:
      name: Name on the command line, such as `v5p:2x2x4`.
      chip: Limits of each chip.
      num_chips: Number of chips.
    """

    name: str
    chip: Chip
    num_chips: int

    @functools.cached_property
    def devices(self) -> Sequence[jax.Device]:
        """Descriptions of the devices, for which programs can be compiled but not run.

        Raises:
          PlanError: The compiler of this platform is not installed.
        """
        if self.chip.name == "h100":
            return _gpu_devices(self.num_chips)
        if importlib.util.find_spec("libtpu") is None:
            raise PlanError(f"--topology={self.name} needs the package libtpu: {INSTALL}")
        for name, value in _TPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        shape = self.name.partition(":")[2]
        try:
            found = topologies.get_topology_desc(
                platform="tpu", topology_name=f"{self.chip.name}:{shape}"
            )
        except jax.errors.JaxRuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise PlanError(
                f"--topology={self.name}: libtpu has no such slice ({reason})"
            ) from error
        return found.devices

    @property
    def host_devices(self) -> Sequence[jax.Device]:
        """Descriptions of the devices of one host, for the programs of its sampler.

        In a slice of several hosts these are the devices of a slice with one host, because the TPU
        compiler refuses programs for a part of a slice.
        """
        hosts = {device.process_index for device in self.devices}
        if len(hosts) == 1:
            return self.devices
        return parse_topology(f"{self.chip.name}:{self.chip.host_shape}").devices


def parse_topology(name: str) -> Topology:
    """Parses a name such as `v5p:2x2x4`, `v5e:4x4` or `h100:8`.

    Raises:
      PlanError: The chip is unknown or the shape is not a product of numbers.
    """
    chip, _, shape = name.partition(":")
    if chip not in CHIPS or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape):
        raise PlanError(
            f"--topology={name!r} is unknown: expected CHIP:SHAPE with a chip of "
            f"{', '.join(CHIPS)}, for example v5e:4x4, v5p:2x2x4, v6e:4x4 or h100:8"
        )
    return Topology(name, CHIPS[chip], math.prod(map(int, shape.split("x"))))


def compile_absent(traced: jax.stages.Traced) -> jax.stages.Compiled:
    """Compiles a program for the devices of its arrays, which may be absent.

    JAX 0.11 lowers GPU kernels for the device of the context's mesh, so a mesh of GPUs is made the
    context.
    """
    meshes = [aval.sharding.mesh for aval in jax.tree.leaves(traced.in_avals)]
    devices = [(mesh, mesh.abstract_device) for mesh in meshes]
    mesh = next((mesh for mesh, device in devices if device and device.platform == "gpu"), None)
    context = contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh)
    with context:
        return traced.lower().compile()


def has_gpu_compiler() -> bool:
    """Returns True if a CUDA plugin of JAX is installed, of CUDA 12 or 13."""
    return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))


def _gpu_devices(num_chips: int) -> Sequence[jax.Device]:
    if not has_gpu_compiler():
        raise PlanError(f"--topology=h100:{num_chips} needs XLA's GPU compiler: {INSTALL_GPU}")
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    # Without a device, the compiler needs a description of it; autotuning is off.
    target = pathlib.Path(__file__).with_name("h100.textproto").read_text(encoding="ascii")
    found = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=target, topology=f"1x1x{num_chips}"
    )
    return found.devices
