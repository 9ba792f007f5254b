"""Reads the head of a GGUF file: its metadata and the table of its tensors.

The reader in the `gguf` package creates several objects per string, so a vocabulary of 150 000
entries takes half a minute. This reader takes a fraction of a second. Source: the GGUF
specification, versions 2 and 3.
"""

import contextlib
import dataclasses
import mmap
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32  # alignment of tensors in bytes, unless the file specifies another value
# format characters of `struct`
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """Position of a tensor in a GGUF file."""

    # axes of the tensor, outermost first as in NumPy; the file stores the reverse order
    shape: tuple[int, ...]
    kind: int  # number of the ggml type, such as 0 for float32 and 8 for Q8_0
    start: int  # offset of the tensor's first byte in the file


def read_metadata(path: pathlib.Path) -> dict[str, Any]:
    """Returns all metadata fields of a `.gguf` file by name: numbers, booleans, strings, and lists
    of these types.

    Raises:
      ValueError: The file is not GGUF of version 2 or 3, or the file is truncated.
    """
    with _reading(path) as reader:
        reader.scalar("Q")  # skips the number of tensors
        return reader.fields()


def read_head(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
    """Returns the metadata fields of a `.gguf` file, and the position of each tensor by name."""
    with _reading(path) as reader:
        count = reader.scalar("Q")
        fields = reader.fields()
        entries = {}
        for _ in range(count):
            name = reader.string()
            shape = tuple(reader.scalar("Q") for _ in range(reader.scalar("I")))
            entries[name] = TensorEntry(shape[::-1], reader.scalar("I"), reader.scalar("Q"))
        alignment = fields.get("general.alignment", _ALIGNMENT)
        first = -(-reader.position // alignment) * alignment
    return fields, {
        name: dataclasses.replace(entry, start=first + entry.start)
        for name, entry in entries.items()
    }


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator["_Reader"]:
    """Opens a reader after the magic number and version; converts errors in the block to
    ValueErrors.
    """
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8 or head[:4] != _MAGIC or struct.unpack("<I", head[4:])[0] not in (2, 3):
            raise ValueError(
                f"{path} is not a GGUF file of version 2 or 3: it starts with {head!r}"
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(data, 8)
            try:
                yield reader
            except (struct.error, KeyError, UnicodeDecodeError) as error:
                raise ValueError(
                    f"{path}: broken or cut off near byte {reader.position} ({error})"
                ) from error


class _Reader:
    """Reads the values of a file in order."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self.data = data
        self.position = position

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.position)
        self.position += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        start, self.position = self.position, self.position + length
        if self.position > len(self.data):
            raise struct.error(f"a string of {length} bytes passes the end of the file")
        return self.data[start : self.position].decode("utf-8")

    def fields(self) -> dict[str, Any]:
        return {self.string(): self.value() for _ in range(self.scalar("Q"))}

    def value(self) -> Any:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind == _STRING:
            return [self.string() for _ in range(length)]
        code = f"<{length}{_SCALARS[kind]}"
        values = struct.unpack_from(code, self.data, self.position)
        self.position += struct.calcsize(code)
        return list(values)
