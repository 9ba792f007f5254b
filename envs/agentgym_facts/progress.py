"""Shows the progress of a build on stderr: a bar on a terminal, else one line per stage."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

_WIDTH = 30  # width of the bar in characters
_REDRAW_S = 0.1

Item = TypeVar("Item")


class Progress:
    """Stages of a build, one after the other."""

    def __init__(self, stages: int, stream: TextIO | None = None):
        """Sets the number of stages and the stream to write to (None is stderr)."""
        self._stages = stages
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._number = 0
        self._drawn_at = 0.0

    def stage(self, name: str, items: Iterable[Item], total: int) -> Iterator[Item]:
        """Yields the items and shows the number of yielded items out of the expected `total`."""
        self._number += 1
        start = time.monotonic()
        done = 0
        for item in items:
            yield item
            done += 1
            if self._is_terminal and time.monotonic() - self._drawn_at > _REDRAW_S:
                self._draw(name, done, max(total, done))
        self._end(name, done, time.monotonic() - start)

    def _draw(self, name: str, done: int, total: int) -> None:
        self._drawn_at = time.monotonic()
        filled = _WIDTH * done // max(total, 1)
        bar = "#" * filled + "." * (_WIDTH - filled)
        self._write(f"\r[{self._number}/{self._stages}] {name:<24} [{bar}] {done:,}/{total:,}  ")

    def _end(self, name: str, done: int, seconds: float) -> None:
        start = "\r" if self._is_terminal else ""
        blanks = " " * (_WIDTH + 10) if self._is_terminal else ""
        self._write(
            f"{start}[{self._number}/{self._stages}] {name:<24} {done:,} in {seconds:.1f} s{blanks}\n"
        )

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
