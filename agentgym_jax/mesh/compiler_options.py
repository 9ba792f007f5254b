"""Compiler options by chip and program, in one table that runs and plans use.

`python -m agentgym_jax.plan --compare_options` compiles the candidates of a chip.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

import jax

from agentgym_jax.mesh.sharding import Layout

Options = Mapping[str, str]
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
# Optimiser steps and gradients; log-probabilities and values of given tokens.
Program = Literal["update", "score"]

# XLA can divide a product with a gathered operand into a loop of products with one shard each
# (windowed einsum), to overlap them with the transfers. Every part of such a loop can read and write
# the whole result in HBM. No array reaches this threshold, so all products stay whole.
WHOLE_PRODUCTS: Options = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}

# Options by `device_kind`; chips and programs that are absent have none.
TABLE: Mapping[str, Mapping[str, Options]] = {
    "TPU v6 lite": {"update": WHOLE_PRODUCTS, "score": WHOLE_PRODUCTS},
}

# Options by platform from which the table chooses.
CANDIDATES: Mapping[str, Sequence[Options]] = {"tpu": ({}, WHOLE_PRODUCTS)}

_candidate: contextvars.ContextVar[Options | None] = contextvars.ContextVar(
    "candidate", default=None
)


class Compiled(Protocol[P, R]):
    """Function that `jax.jit` has returned."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the program; compiles it first if the shapes are new."""

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Returns the program for abstract arguments."""


def compiler_options(program: Program, layout: Layout | None) -> dict[str, str] | None:
    """Returns the `compiler_options` of `jax.jit` for a program; None if it has none.

    `layout` has the devices of the program; None stands for the default device.
    """
    device = jax.devices()[0] if layout is None else layout.mesh.devices.flat[0]
    candidate = _candidate.get()
    options = look_up(device, program) if candidate is None else candidate
    return dict(options) or None


def look_up(device: jax.Device, program: str) -> Options:
    """Returns the options that the table has for a program on a device."""
    return TABLE.get(device.device_kind, {}).get(program, {})


@contextlib.contextmanager
def trying(options: Options) -> Iterator[None]:
    """Gives the programs made inside these options instead of those of the table."""
    token = _candidate.set(options)
    try:
        yield
    finally:
        _candidate.reset(token)
