"""Random strings that an application makes in an episode: the same ones whenever it is repeated.

Keys of new wish lists, sessions and the like appear in addresses; taken from the machine's chance they
would differ when an episode is played again with the same actions.
"""

import contextlib
import contextvars
import hashlib
import sys
from collections.abc import Iterator

_drawn: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("drawn", default=None)


@contextlib.contextmanager
def of_request(seconds: int) -> Iterator[None]:
    """Within it, in this thread, random strings follow from the age of the episode.

    Args:
      seconds: that the episode has lasted; one more with each request.
    """
    token = _drawn.set([str(seconds)])
    try:
        yield
    finally:
        _drawn.reset(token)


def install() -> None:
    """Replaces Django's random strings; before anything but Django's base is imported."""
    from django.utils import crypto

    if "django.middleware.csrf" in sys.modules:
        raise RuntimeError("chance.install() comes too late: parts of Django hold the function")
    by_chance = crypto.get_random_string

    def get_random_string(length: int, allowed_chars: str = crypto.RANDOM_STRING_CHARS) -> str:
        drawn = _drawn.get()
        if drawn is None:
            return by_chance(length, allowed_chars)
        drawn.append("")
        digest = hashlib.shake_256(f"{drawn[0]}/{len(drawn)}".encode()).digest(2 * length)
        pairs = zip(digest[::2], digest[1::2], strict=True)
        return "".join(allowed_chars[(256 * a + b) % len(allowed_chars)] for a, b in pairs)

    crypto.get_random_string = get_random_string
