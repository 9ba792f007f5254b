"""Counts the programs that XLA compiles: none should be compiled after the first steps."""

import threading

import jax


class CompilationCounter:
    """Programs compiled (or read from the persistent cache) since it was made."""

    _EVENT = "/jax/core/compile/backend_compile_duration"

    def __init__(self) -> None:
        """Starts counting; stays registered with JAX for the life of the process."""
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_s: float, **_: object) -> None:
        if event == self._EVENT:
            with self._lock:
                self.count += 1
                self.seconds += duration_s
