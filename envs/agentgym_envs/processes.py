"""Other processes on this machine: whether they are alive, their descendants, and their end."""

import contextlib
import functools
import os
import signal
import time

_PASSES, _PASS_S = 100, 0.01  # a process in a system call can survive its kill for a while


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


def kill_marked(name: str, value: str) -> None:
    """Kills the processes that were started with a variable of this value, or inherited it.

    It also finds those whose parent has ended. On a machine without /proc it does nothing.
    """
    mark = f"{name}={value}".encode()
    for _ in range(_PASSES):  # a process that was started meanwhile is found by the next pass
        found = [pid for pid in _numbers() if mark in _variables(pid)]
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(_PASS_S)


def _numbers() -> list[int]:
    names = os.listdir("/proc") if os.path.isdir("/proc/self") else []
    return [int(name) for name in names if name.isdigit()]


def _variables(pid: int) -> list[bytes]:
    """Returns the variables with which a process was started; none of another user, or a zombie."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def family(root: int) -> dict[int, int]:
    """Returns the resident pages of a process and its descendants by number."""
    parents, pages = {}, {}
    for number in _numbers():
        try:
            with open(f"/proc/{number}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # the process has ended
            continue
        parents[number], pages[number] = int(fields[1]), int(fields[21])

    @functools.cache
    def belongs(pid: int) -> bool:
        return pid == root or (pid in parents and belongs(parents[pid]))

    return {pid: size for pid, size in pages.items() if belongs(pid)}
