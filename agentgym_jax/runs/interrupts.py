"""Ctrl-C in a command: a program that is still starting ends at once, and so does a second Ctrl-C.

Python's own handler raises KeyboardInterrupt between any two instructions. During an import this
gives a traceback of the libraries, and in a callback of JAX the exception is lost. A command
therefore calls `install` before it imports JAX.
"""

import contextlib
import os
import queue
import signal
import sys
from collections.abc import Callable
from types import FrameType

_STATUS = 128 + signal.SIGINT
_SHOW_CURSOR = "\x1b[?25h"  # the live table hides it
_is_installed = False


def install() -> None:
    """Makes Ctrl-C end the process; for programs, before their other imports."""
    global _is_installed
    signal.signal(signal.SIGINT, end)
    _is_installed = True


def raise_once() -> None:
    """Makes the next Ctrl-C raise KeyboardInterrupt, so that files and processes are cleaned up."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        raise KeyboardInterrupt

    if _is_installed:
        signal.signal(signal.SIGINT, handle)


class StopSignal:
    """SIGINT and SIGTERM, which ask a server to stop; made in the main thread."""

    def __init__(self) -> None:
        # A handler may interrupt itself. `threading.Event.set` would then wait for its own lock.
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self._numbers.put(number))

    def wait(self, check: Callable[[], None], interval_s: float = 1.0) -> None:
        """Returns at the first signal; until then, calls `check` at the interval, in seconds."""
        while True:
            with contextlib.suppress(queue.Empty):
                self._numbers.get(timeout=interval_s)
                return
            check()


def handle_second(number: int, frame: FrameType | None) -> None:
    """Ends a command at once; in a notebook or another program it raises KeyboardInterrupt."""
    if not _is_installed:
        raise KeyboardInterrupt
    end(number, frame)


def end(number: int, frame: FrameType | None) -> None:
    """Ends the process without cleaning up: files are atomic, and servers end with their parent."""
    cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
    with contextlib.suppress(OSError):  # the terminal may be gone
        # a stream may be in use by the code below us
        os.write(2, f"{cursor}\ninterrupted\n".encode())
    os._exit(_STATUS)
