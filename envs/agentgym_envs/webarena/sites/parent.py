"""A site ends with the process that started it, however that one ended."""

import os
import threading
import time

_POLL_SECONDS = 1.0


def end_with(parent_pid: int) -> None:
    """Ends this process at once when the other one is gone.

    Args:
      parent_pid: of a process that lives now.
    """
    threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()


def _watch(parent_pid: int) -> None:
    is_own_parent = os.getppid() == parent_pid
    # An own parent that died is recognised by adoption: its id may still exist as a zombie.
    while _exists(parent_pid) and (not is_own_parent or os.getppid() == parent_pid):
        time.sleep(_POLL_SECONDS)
    os._exit(0)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
