"""Tasks on the embedded sites in WebArena's format, each with a scripted solution."""

import functools
import importlib
from collections.abc import Sequence

from agentgym_sites.tasks.task import EmbeddedTask

# Modules with `tasks()`. Their order does not matter, because tasks are sorted by their numbers.
MODULES = (
    "agentgym_sites.tasks.across",
    "agentgym_sites.tasks.forum",
    "agentgym_sites.tasks.shopping",
    "agentgym_sites.tasks.shopping_admin",
    "agentgym_sites.tasks.trac",
)


@functools.cache
def embedded_tasks(modules: Sequence[str] = MODULES) -> tuple[EmbeddedTask, ...]:
    """Returns all embedded tasks, sorted by their numbers, which never change.

    Raises:
      ValueError: two tasks have the same number.
    """
    found = [task for name in modules for task in importlib.import_module(name).tasks()]
    found.sort(key=lambda embedded: embedded.task.task_id)
    for one, other in zip(found, found[1:], strict=False):
        if one.task.task_id == other.task.task_id:
            raise ValueError(f"two embedded tasks have the number {one.task.task_id}")
    return tuple(found)
