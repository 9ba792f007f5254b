"""What the machine under a run is asked for: memory of host and devices, sessions, threads, files.

A measurement takes a millisecond or two. What an operating system does not tell is left out.
"""

import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import jax

_GIB = float(2**30)
_PROCESSES = pathlib.Path("/proc")


def measure(open_sessions: Callable[[], int] | None = None) -> dict[str, float]:
    """Metrics `system/...` of now.

    Args:
      open_sessions: counts the sessions held on environment servers; None without environments.
    """
    found = _of_process() | of_devices(jax.local_devices())
    if open_sessions is not None:
        found["system/open_sessions"] = float(open_sessions())
    return found


def _of_process() -> dict[str, float]:
    """Of this process and of those it started; only Linux tells about memory and threads."""
    found = {}
    here = _PROCESSES / "self"
    if (here / "statm").exists():
        found["system/host_memory_gib"] = _resident_gib(here)
        found["system/child_memory_gib"] = sum(map(_resident_gib, _descendants(here)))
        found["system/threads"] = float(len(os.listdir(here / "task")))
    if os.path.isdir("/dev/fd"):  # a link to /proc/self/fd, or a file system of its own
        found["system/open_files"] = float(len(os.listdir("/dev/fd")))
    return found


def _resident_gib(process: pathlib.Path) -> float:
    """Resident memory; 0 of a process that has just ended."""
    try:
        pages = int((process / "statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / _GIB


def _descendants(process: pathlib.Path) -> Iterator[pathlib.Path]:
    """Running processes that this one started, and those that they started."""
    try:
        lists = [path.read_text() for path in process.glob("task/*/children")]
    except (FileNotFoundError, ProcessLookupError):  # the process or one of its threads has ended
        return
    for number in " ".join(lists).split():
        child = _PROCESSES / number
        yield child
        yield from _descendants(child)


def of_devices(devices: Sequence[jax.Device]) -> dict[str, float]:
    """Memory of the fullest device: as its backend counts, else what the live arrays take.

    A backend without an allocator of its own (CPU) knows no peak; there the arrays of all its
    devices are added up, because they are in one memory.
    """
    counts = [stats for device in devices if (stats := device.memory_stats())]
    if not counts:
        arrays = sum(array.nbytes for array in jax.live_arrays())
        return {"system/device_memory_gib": arrays / _GIB}
    return {
        "system/device_memory_gib": max(c["bytes_in_use"] for c in counts) / _GIB,
        "system/device_memory_peak_gib": max(c["peak_bytes_in_use"] for c in counts) / _GIB,
    }
