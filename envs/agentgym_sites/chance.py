"""Pseudo-random choices that are the same on every machine and Python version.

Seed data, tasks and running sites use these choices. Seed data must not change between builds.
The keys of new wish lists, sessions and similar objects appear in addresses. With random keys, the
addresses would differ when the same actions are replayed.
"""

import contextlib
import contextvars
import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Pseudo-random choices from hashes of a name and a counter."""

    def __init__(self, name: str, *, thrown: int = 0):
        """Starts a sequence that does not depend on sequences with other names.

        Args:
          name: Name of the sequence; it determines the choices.
          thrown: Number of choices to skip at the beginning.
        """
        self._name = name
        self._count = thrown

    def _next(self) -> bytes:
        self._count += 1
        return f"{self._name}/{self._count}".encode()

    def below(self, limit: int) -> int:
        """Returns a number from 0 to `limit` - 1."""
        return int.from_bytes(hashlib.sha256(self._next()).digest()[:8], "big") % limit

    def between(self, low: int, high: int) -> int:
        """Returns a number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        """Returns one of the choices."""
        return choices[self.below(len(choices))]

    def sample(self, choices: Sequence[T], count: int) -> list[T]:
        """Returns `count` different items in the order in which they were drawn."""
        rest = list(choices)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]

    def text(self, length: int, letters: str) -> str:
        """Returns `length` of the letters, possibly with repetitions."""
        digest = hashlib.shake_256(self._next()).digest(2 * length)
        pairs = zip(digest[::2], digest[1::2], strict=True)
        return "".join(letters[(256 * a + b) % len(letters)] for a, b in pairs)


_dice: contextvars.ContextVar[Dice | None] = contextvars.ContextVar("dice", default=None)


@contextlib.contextmanager
def seed_request(seconds: int) -> Iterator[None]:
    """Derives this thread's random strings from the age of the episode while the context is open."""
    # Skipping the first choice keeps session keys and other strings as they were before.
    token = _dice.set(Dice(str(seconds), thrown=1))
    try:
        yield
    finally:
        _dice.reset(token)


def install() -> None:
    """Replaces Django's function for random strings; call it before Django imports middleware."""
    from django.utils import crypto

    if "django.middleware.csrf" in sys.modules:
        raise RuntimeError("chance.install() is too late: Django already uses its own function")
    by_chance = crypto.get_random_string

    def get_random_string(length: int, allowed_chars: str = crypto.RANDOM_STRING_CHARS) -> str:
        dice = _dice.get()
        return (
            by_chance(length, allowed_chars) if dice is None else dice.text(length, allowed_chars)
        )

    crypto.get_random_string = get_random_string
