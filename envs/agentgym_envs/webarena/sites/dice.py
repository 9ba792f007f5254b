"""Choices that are the same on every machine and Python: seeds of sites must not change by themselves."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Numbers from SHA-256 of a name and a counter."""

    def __init__(self, name: str):
        """Starts a sequence of its own.

        Args:
          name: of what is being chosen; other names give other numbers.
        """
        self._name = name
        self._count = 0

    def below(self, limit: int) -> int:
        """0 to limit - 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._name}/{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit

    def between(self, low: int, high: int) -> int:
        """Low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.below(len(choices))]

    def sample(self, choices: Sequence[T], count: int) -> list[T]:
        """So many different ones, in the order of their drawing."""
        rest = list(choices)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]
