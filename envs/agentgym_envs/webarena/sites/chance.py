"""Chance that is the same on every machine and Python: of seeds, of tasks, and of a running site.

Seeds must not change by themselves. And keys of new wish lists, sessions and the like appear in
addresses: taken from the machine's chance they would differ when an episode is played again with the
same actions.
"""

import contextlib
import contextvars
import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Choices from hashes of a name and a counter."""

    def __init__(self, name: str, *, thrown: int = 0):
        """Starts a sequence of its own.

        Args:
          name: of what is being chosen; other names give other choices.
          thrown: choices that are left out at the beginning.
        """
        self._name = name
        self._count = thrown

    def _next(self) -> bytes:
        self._count += 1
        return f"{self._name}/{self._count}".encode()

    def below(self, limit: int) -> int:
        """0 to limit - 1."""
        return int.from_bytes(hashlib.sha256(self._next()).digest()[:8], "big") % limit

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

    def text(self, length: int, letters: str) -> str:
        """So many letters, some perhaps more than once."""
        digest = hashlib.shake_256(self._next()).digest(2 * length)
        pairs = zip(digest[::2], digest[1::2], strict=True)
        return "".join(letters[(256 * a + b) % len(letters)] for a, b in pairs)


_dice: contextvars.ContextVar[Dice | None] = contextvars.ContextVar("dice", default=None)


@contextlib.contextmanager
def of_request(seconds: int) -> Iterator[None]:
    """Within it, in this thread, random strings follow from the age of the episode.

    Args:
      seconds: that the episode has lasted; one more with each request.
    """
    # From the second on, as in the sites that are prepared: their sessions have such keys.
    token = _dice.set(Dice(str(seconds), thrown=1))
    try:
        yield
    finally:
        _dice.reset(token)


def install() -> None:
    """Replaces Django's random strings; before anything but Django's base is imported."""
    from django.utils import crypto

    if "django.middleware.csrf" in sys.modules:
        raise RuntimeError("chance.install() comes too late: parts of Django hold the function")
    by_chance = crypto.get_random_string

    def get_random_string(length: int, allowed_chars: str = crypto.RANDOM_STRING_CHARS) -> str:
        dice = _dice.get()
        return (
            by_chance(length, allowed_chars) if dice is None else dice.text(length, allowed_chars)
        )

    crypto.get_random_string = get_random_string
