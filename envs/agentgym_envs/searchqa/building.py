"""Common code of builds: a name derived from the input files, and progress messages."""

import hashlib
import pathlib
from collections.abc import Iterable

from agentgym_envs.artifacts import announcer

_SAMPLE_BYTES = 1 << 20

say = announcer("searchqa")


def fingerprint(paths: Iterable[pathlib.Path], *words: str) -> str:
    """Returns a hash of the files and words, in sixteen hexadecimal digits.

    A corpus can have gigabytes, so only the name, length and three samples of 1 MiB of each file
    are hashed.
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
