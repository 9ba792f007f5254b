"""Access to lines of a long file by number; processes share the file through the memory map."""

import mmap
import pathlib
from collections.abc import Iterator

import numpy as np

from agentgym_envs.artifacts import appearing_file


class Lines:
    """Read access to the lines of a file by number, through an index of line positions.

    Args:
      path: File of lines, which must not be empty.
      offsets: File written by `write_offsets`.
    """

    def __init__(self, path: pathlib.Path, offsets: pathlib.Path):
        self._offsets = np.load(offsets, mmap_mode="r").view(np.ndarray)
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self._bytes) != self._offsets[-1]:
            raise ValueError(
                f"{path} has {len(self._bytes)} bytes, {self._offsets[-1]} when it was indexed; "
                f"remove {offsets.parent} to have it indexed again"
            )

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> bytes:
        return self._bytes[self._offsets[number] : self._offsets[number + 1]]


def write_offsets(lines: Iterator[bytes], path: pathlib.Path) -> int:
    """Writes the start of each line and the end of the file; returns the number of lines."""
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    with appearing_file(path) as partial, partial.open("wb") as file:
        np.save(file, np.array(offsets, dtype=np.int64))
    return len(offsets) - 1
