"""Files with one JSON object per line; the error for a line that cannot be read names it."""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from agentgym_jax.runs import bucket

# errors of a function that reads a record in which a field is missing or has another type
_MISFIT = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
T = TypeVar("T")


class DamagedFileError(ValueError):
    """A file of a run that was cut or edited, or that another version wrote."""


def parse_line(place: str, line: bytes, parse: Callable[[Any], T]) -> T:
    """Returns `parse` of the JSON value of a line; the error begins with `place`."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        found = f"is not JSON ({error})"
        raise DamagedFileError(f"{place} {found}; restore the file or remove the line") from error
    try:
        return parse(value)
    except _MISFIT as error:
        found = f"is no record of this version ({error!r})"
        raise DamagedFileError(f"{place} {found}; restore the file or remove the line") from error


def read_lines(path: bucket.Folder, parse: Callable[[Any], T]) -> Iterator[T]:
    """Yields `parse` of each line of a file; raises DamagedFileError at the first bad line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield parse_line(f"{path}, line {number}", line, parse)
