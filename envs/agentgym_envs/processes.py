"""Checks if other processes on this machine are alive."""

import os


def exists(pid: int) -> bool:
    """Returns True if a process with this id exists, even as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # the process belongs to another user
    return True


def is_gone(parent_pid: int, was_own_parent: bool) -> bool:
    """Returns True if a process that this one depends on has ended.

    A process whose parent dies gets another parent. The dead parent may still exist as a zombie.

    Args:
      parent_pid: Pid of the process that this one depends on.
      was_own_parent: Value of `os.getppid() == parent_pid` while that process was alive.
    """
    return not exists(parent_pid) or (was_own_parent and os.getppid() != parent_pid)
