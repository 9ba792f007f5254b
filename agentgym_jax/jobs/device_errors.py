"""Errors of devices as messages of one line: memory that runs out, and devices that do not exist."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.runs.config_differences import flatten

# Keys that determine the memory of a run, those without an effect on the result first.
_MEMORY_KEYS = (
    "sampler.rows",
    "learner.micro_rows",
    "sft.micro_rows",
    "dpo.micro_rows",
    "model.remat",
    "sampler.cache_length",
)
_EXHAUSTED = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "OUT_OF_MEMORY")


class DeviceError(RuntimeError):
    """A device lacks memory; the message names the values to lower."""


@contextlib.contextmanager
def device_errors(config: Mapping[str, Any]) -> Iterator[None]:
    """Converts an error of JAX for exhausted memory to a DeviceError; first checks the devices.

    `config` is the plain config of a job, or the values of a command by the names of its flags.
    """
    check_devices()
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error) for word in _EXHAUSTED):
            raise
        reason = str(error).strip().splitlines()[0][:200]
        raise DeviceError(
            f"the memory of the device is exhausted: lower {_values(config)} ({reason})"
        ) from error


def _values(config: Mapping[str, Any]) -> str:
    """Returns the keys that determine the memory, with their values."""
    flat = flatten(config)
    keys = [key for key in _MEMORY_KEYS if key in flat]
    if not keys:
        return " or ".join(f"--{key}={value}" for key, value in config.items())
    named = [f"config.{key}={flat[key]!r}" for key in keys]
    if flat.get("model.remat") in ("none", "dots"):
        named = [f"{name} (to 'block')" if ".remat=" in name else name for name in named]
    return ", ".join(named)


def check_devices() -> None:
    """Raises ConfigError if JAX finds no device of the platform that JAX_PLATFORMS names."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = (str(error).strip() or "no such device").splitlines()[0][:200]
        raise ConfigError(
            f"JAX_PLATFORMS={platforms}: JAX cannot use this platform ({reason}). Unset the variable, "
            "or install the driver and the extra for the device (docs/runs.md)"
        ) from error
