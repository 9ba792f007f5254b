"""Other processes on this machine: whether they are alive, their descendants, and their end."""

import contextlib
import functools
import os
import signal


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


def kill_family(root: int) -> None:
    """Kills a process and its descendants; on a machine without /proc only the process."""
    for pid in family(root) if os.path.isdir("/proc/self") else (root,):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def family(root: int) -> dict[int, int]:
    """Returns the resident pages of a process and its descendants by number."""
    parents, pages = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # the process has ended
                continue
            parents[int(name)], pages[int(name)] = int(fields[1]), int(fields[21])

    @functools.cache
    def belongs(pid: int) -> bool:
        return pid == root or (pid in parents and belongs(parents[pid]))

    return {pid: size for pid, size in pages.items() if belongs(pid)}
