"""AgentGym's own package `agentenv`, imported from a checkout that the variable AGENTGYM names.

The package of this name on PyPI is an empty placeholder (0.0.1).
"""

import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types
from typing import Any

import pytest

CHECKOUT = os.environ.get("AGENTGYM")
needs_checkout = pytest.mark.skipif(
    not CHECKOUT, reason="AGENTGYM does not name a checkout of AgentGym"
)


def load(module: str, name: str) -> Any:
    """Returns an object of a module of the checkout, such as `agentenv.envs`."""
    folder = str(pathlib.Path(CHECKOUT) / "agentenv")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if importlib.util.find_spec("openai") is None:
        # `agentenv.controller` imports openai for agents that most tests do not use.
        unused = types.ModuleType("openai")
        unused.__spec__ = importlib.machinery.ModuleSpec("openai", None)
        unused.OpenAI = None
        sys.modules["openai"] = unused
    return getattr(importlib.import_module(module), name)
