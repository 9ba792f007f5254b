"""Multi-turn reinforcement learning of LLM agents against real environments, in JAX.

The functions below are those of `agentgym_jax.api`, which is imported when one of them is used
first. The modules `train` and `evaluate` of this package are commands and cannot be imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

from agentgym_envs import __version__ as __version__  # one distribution installs both packages

if TYPE_CHECKING:
    from agentgym_jax.api import *

__all__ = [
    "USER_ERRORS",
    "ConfigError",
    "LoadedPolicy",
    "LoadedRun",
    "Result",
    "StopRequested",
    "compare",
    "evaluate",
    "load_config",
    "load_policy",
    "load_run",
    "train",
]


def __getattr__(name: str) -> Any:
    """Returns a name of `agentgym_jax.api`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("agentgym_jax.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
