"""Counts the programs that XLA compiles; after the first steps there should be none."""

import threading

import jax


class CompilationCounter:
    """Counter of programs compiled, or read from the persistent cache, since its creation."""

    _EVENT = "/jax/core/compile/backend_compile_duration"

    def __init__(self) -> None:
        """Starts counting; JAX calls the counter until the process ends."""
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_s: float, **_: object) -> None:
        if event == self._EVENT:
            with self._lock:
                self.count += 1
                self.seconds += duration_s
