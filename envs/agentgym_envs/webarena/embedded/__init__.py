"""Tasks on the embedded sites, in WebArena's format, each with a scripted solution."""

import functools
import importlib
from collections.abc import Sequence

from agentgym_envs.webarena.embedded.task import EmbeddedTask

# Modules with `tasks()`; their order does not matter, tasks are ordered by their numbers.
MODULES = (
    "agentgym_envs.webarena.embedded.across",
    "agentgym_envs.webarena.embedded.forum",
    "agentgym_envs.webarena.embedded.shopping",
    "agentgym_envs.webarena.embedded.shopping_admin",
    "agentgym_envs.webarena.embedded.trac",
)


@functools.cache
def embedded_tasks(modules: Sequence[str] = MODULES) -> tuple[EmbeddedTask, ...]:
    """All of them, by their numbers, which never change.

    Raises:
      ValueError: two have the same number.
    """
    found = [task for name in modules for task in importlib.import_module(name).tasks()]
    found.sort(key=lambda embedded: embedded.task.task_id)
    for one, other in zip(found, found[1:], strict=False):
        if one.task.task_id == other.task.task_id:
            raise ValueError(f"two embedded tasks have the number {one.task.task_id}")
    return tuple(found)
