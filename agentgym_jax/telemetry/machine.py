"""Measures the resources of a run: memory, sessions, threads, files, compiled programs."""

import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence

import jax

_GIB = float(2**30)
_PROCESSES = pathlib.Path("/proc")
_COMPILATION = "/jax/core/compile/backend_compile_duration"


class CompilationCounter:
    """Counter of programs that XLA compiled or read from the persistent cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _COMPILATION:
            with self._lock:
                self.count += 1
                self.seconds += duration_secs


def measure(open_sessions: Callable[[], int] | None = None) -> dict[str, float]:
    """Returns the metrics `system/...`; `open_sessions` counts sessions on environment servers."""
    found = {}
    here = _PROCESSES / "self"
    if (here / "statm").exists():  # only on Linux
        found["system/host_memory_gib"] = _resident_gib(here)
        found["system/child_memory_gib"] = sum(map(_resident_gib, _descendants(here)))
        found["system/threads"] = float(len(os.listdir(here / "task")))
    # on Linux a link to /proc/self/fd, elsewhere a separate file system
    if os.path.isdir("/dev/fd"):
        found["system/open_files"] = float(len(os.listdir("/dev/fd")))
    found |= measure_devices(jax.local_devices())
    if open_sessions is not None:
        found["system/open_sessions"] = float(open_sessions())
    return found


def _resident_gib(process: pathlib.Path) -> float:
    """Returns the resident memory of a process in GiB; 0 if the process has just ended."""
    try:
        pages = int((process / "statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / _GIB


def _descendants(process: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folders of all running descendants of a process."""
    try:
        lists = [path.read_text() for path in process.glob("task/*/children")]
    except (FileNotFoundError, ProcessLookupError):  # the process or one of its threads has ended
        return
    for number in " ".join(lists).split():
        child = _PROCESSES / number
        yield child
        yield from _descendants(child)


def measure_devices(devices: Sequence[jax.Device]) -> dict[str, float]:
    """Returns the memory use of the fullest device."""
    counts = [stats for device in devices if (stats := device.memory_stats())]
    if not counts:  # CPU devices report none and share one memory
        arrays = sum(array.nbytes for array in jax.live_arrays())
        return {"system/device_memory_gib": arrays / _GIB}
    return {
        "system/device_memory_gib": max(c["bytes_in_use"] for c in counts) / _GIB,
        "system/device_memory_peak_gib": max(c["peak_bytes_in_use"] for c in counts) / _GIB,
    }
