"""The tool environments and calls of their tools, for the tests of this folder."""

import pytest

from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS
from agentgym_envs.tools.actions import write_call

CALLING = ["weather", "movie", "academia", "todo", "sheet"]
NAMES = [*CALLING, "sqlgym"]
SERVED = {name: load_environment(ENVIRONMENTS[name].module) for name in NAMES}
EVERY = pytest.mark.parametrize("name", NAMES)
CALLED = pytest.mark.parametrize("name", CALLING)
# inputs of calls that are no dictionary of plain values
HOSTILE = [
    "__import__('os').getpid()",
    "(" * 3000,
    "[" * 9000,
    "-" * 9000 + "1",
    "{'a':" * 2000,
    "{'a': " + "[" * 12 + "]" * 12 + "}",
    "{'answer': 1e999}",
    *("{'answer': " + "9" * digits + "}" for digits in (31, 400, 5000)),
    "{1, 2}",
    "b'x'",
    "{[]: 1}",
    "{'a': 1+1}",
    "\x00",
]


def start(name, data_idx=0, compat=False):
    kind = SERVED[name]
    environment = kind.compat_factory() if compat else kind.factory()
    environment.reset(data_idx)
    return environment


def call(environment, tool, **arguments):
    """Calls a tool; returns the text of its result."""
    text = environment.step(write_call(tool, arguments)).observation
    return text.removeprefix("Observation: ").removesuffix("\nGive me one action.")


def first_of(name, template):
    """Returns the index of the first task of a template."""
    tasks = SERVED[name].tasks()
    return next(task["data_idx"] for task in tasks if task["template"] == template)
