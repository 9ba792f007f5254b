"""Times of an environment's resets and steps."""

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence

_SILENT_SECONDS = 10.0  # time after which a call that still runs is reported


class Times:
    """Durations of all calls of one environment, by method."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def measure(self, method: str, what: str) -> Iterator[None]:
        """Records the duration of a call; reports `what` on stderr if it takes long."""
        text = f"\n    {what} has run for {_SILENT_SECONDS:.0f} s; Ctrl-C ends the check\n"
        alarm = threading.Timer(_SILENT_SECONDS, sys.stderr.write, [text])
        alarm.daemon = True
        alarm.start()
        began = time.perf_counter()
        try:
            yield
        finally:
            alarm.cancel()
            self._seconds.setdefault(method, []).append(time.perf_counter() - began)

    def text(self) -> str:
        """Returns the median and the 99th percentile of each method; empty without calls."""
        return "; ".join(
            f"{method} p50 {_shown(_quantile(seconds, 0.5))}, p99 {_shown(_quantile(seconds, 0.99))}"
            for method, seconds in self._seconds.items()
        )

    def longest(self, method: str) -> float:
        """Returns the duration of the longest call in seconds; 0 without calls."""
        return max(self._seconds.get(method, [0.0]))


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
