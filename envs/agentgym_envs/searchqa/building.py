"""What all that is built here has: a name that follows from its files, and a voice."""

import hashlib
import pathlib
from collections.abc import Iterable

from agentgym_envs.artifacts import announcer

_SAMPLE_BYTES = 1 << 20

say = announcer("searchqa")


def fingerprint(paths: Iterable[pathlib.Path], *words: str) -> str:
    """Sixteen digits that change with the files or the words.

    Of a long file its length and three parts of a MiB are read, because a corpus may have gigabytes.
    """
    digest = hashlib.sha256("\0".join(words).encode())
    for path in paths:
        size = path.stat().st_size
        digest.update(f"\0{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for start in (0, max(0, size // 2 - _SAMPLE_BYTES // 2), max(0, size - _SAMPLE_BYTES)):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
