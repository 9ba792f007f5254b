"""Limits on time in tests.

A limit on something that must happen only ends a test that hangs, so it is `PATIENCE_S`. Something
that must not happen has no limit that a slow machine can reach: the test holds an answer back with
an event, or passes a clock. A limit that a test reaches on purpose is short, and its line ends with
the comment `# reached`. `tests/test_time_limits.py` enforces these rules.
"""

import time
from collections.abc import Callable

PATIENCE_S = 300.0  # far above what a loaded machine needs; pytest ends a test after 1,800 s


def until(is_true: Callable[[], object], what: str = "what the test waits for") -> None:
    """Waits until a function returns a true value; fails after `PATIENCE_S` seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE_S:g} s"
        time.sleep(0.01)
