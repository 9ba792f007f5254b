"""Fields of WebArena's JSON, with errors that name the place and the problem."""

from collections.abc import Mapping
from typing import Any


class TaskFormatError(ValueError):
    """Error for a task without WebArena's format; the message names the task and the field."""


_MISSING = object()
_KIND_NAMES = {str: "a string", int: "a number", bool: "true or false", list: "a list"} | {
    Mapping: "an object"
}


class Fields:
    """Reader of the fields of one JSON object.

    Attributes:
      place: Position in the file, for errors.
    """

    def __init__(self, row: Any, place: str):
        if not isinstance(row, Mapping):
            raise TaskFormatError(f"{place} should be an object, found {row!r:.80}")
        self.place = place
        self._row = row

    def value(self, field: str) -> Any:
        """Returns a field unchanged; None if it is missing."""
        return self._row.get(field)

    def one(self, field: str, kind: type, default: Any = _MISSING) -> Any:
        """Returns a field of one type; null counts as missing."""
        value = self._row.get(field)
        if value is None and default is not _MISSING:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(field, _KIND_NAMES[kind])
        return value

    def texts(self, field: str, default: Any = _MISSING) -> Any:
        """Returns a list of strings that is not empty; null counts as missing."""
        value = self._row.get(field)
        if value is None and default is not _MISSING:
            return default
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise self.wrong(field, "a list of strings")
        return tuple(value)

    def inner(self, field: str) -> "Fields":
        """Returns a reader of an object within this one."""
        return Fields(self.one(field, Mapping), f"{self.place}.{field}")

    def rows(self, field: str) -> list["Fields"]:
        """Returns readers of a list of objects."""
        rows = self.one(field, list)
        return [Fields(row, f"{self.place}.{field}[{i}]") for i, row in enumerate(rows)]

    def only(self, *rules: str) -> None:
        """Requires one of these fields; forbids all other fields, which would not be checked."""
        known = ", ".join(rules)
        for field in self._row:
            if field not in rules:
                raise TaskFormatError(f"{self.place}: no rule {field!r}; rules are {known}")
        if all(self._row.get(rule) is None for rule in rules):
            raise TaskFormatError(f"{self.place} should have at least one of {known}")

    def wrong(self, field: str, expected: str) -> TaskFormatError:
        """Returns the error for a wrong field."""
        found = f"{self._row[field]!r:.80}" if field in self._row else "nothing"
        return TaskFormatError(f"{self.place}: {field} should be {expected}, found {found}")
