"""Ends a site's process whenever the process that started it ends."""

import os
import threading
import time

from agentgym_envs.processes import is_gone

_POLL_SECONDS = 1.0


def end_with(parent_pid: int) -> None:
    """Starts a thread that ends this process within a second after the parent has ended."""
    threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()


def _watch(parent_pid: int) -> None:
    was_own_parent = os.getppid() == parent_pid
    while not is_gone(parent_pid, was_own_parent):
        time.sleep(_POLL_SECONDS)
    os._exit(0)
