"""Limits of config values, declared in annotations: `rows: Annotated[int, Range(1, unit="rows")]`.

They reject invalid values before a run starts (`misfit`) and appear in docs/config.md (`describe`).
The fields of the JSON files of a model have the same limits (`read_object`).
"""

import dataclasses
import functools
import inspect
import json
import pathlib
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "True or False"}
_LARGEST = 2**31 - 1  # a larger whole number does not fit the integers of JAX's arrays
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60  # characters
_LONG_WORD = re.compile(r"(\S{150})\S{101,}(\S{50})")


@dataclasses.dataclass(frozen=True)
class Range:
    """Limits of a number (None for no limit), and the unit of the number for messages."""

    at_least: float | None = None
    at_most: float | None = None
    _: dataclasses.KW_ONLY
    above: float | None = None
    below: float | None = None
    unit: str = ""

    def holds(self, value: Any) -> bool:
        """Returns True if the value is within the limits."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        named = {"at least": self.at_least, "above": self.above}
        named |= {"at most": self.at_most, "below": self.below}
        return " and ".join(f"{name} {limit}" for name, limit in named.items() if limit is not None)


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Accepted names of a value, such as the keys of a table."""

    names: Collection[str]

    def holds(self, value: Any) -> bool:
        """Returns True if the value is one of the names."""
        return value in self.names

    def __str__(self) -> str:
        return f"one of {', '.join(str(name) or 'an empty text' for name in self.names)}"


# Longer times do not fit the clocks of the operating system.
_LONGEST_S = 10**9
Seconds = Annotated[float, Range(0, _LONGEST_S, unit="seconds")]
PositiveSeconds = Annotated[float, Range(above=0, at_most=_LONGEST_S, unit="seconds")]


def annotations(reader: Callable[..., Any]) -> dict[str, Any]:
    """Returns the annotations (else `Any`) of the arguments of a function or class, by name."""
    function = reader.func if isinstance(reader, functools.partial) else reader
    function = function.__init__ if inspect.isclass(function) else function
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    return {name: hints.get(name, Any) for name in inspect.signature(reader).parameters}


def misfit(value: Any, annotation: Any) -> str:
    """Returns a description of the valid values if `value` is invalid, otherwise an empty text."""
    if _fits(value, annotation):
        return ""
    expected = describe(annotation)
    is_large = type(value) is int and value > _LARGEST and "at most" not in expected
    limit = f", at most {_LARGEST}" if is_large and expected.startswith(_NAMES[int]) else ""
    return expected + limit


def check_field(place: Any, key: str, value: Any, annotation: Any) -> None:
    """Raises ValueError that names `place` (a file) and `key` if the value is invalid."""
    expected = misfit(value, annotation)
    if expected:
        raise ValueError(f"{place}: {key}={shorten(value)}: expected {expected}")


def read_object(path: pathlib.Path, fields: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
    """Returns the object of a JSON file.

    `fields` has the annotations of fields that are checked if they are present.

    Raises:
      ValueError: The file holds no JSON object, or a field is invalid.
      OSError: The file cannot be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); restore it") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds {shorten(value)}, expected a JSON object; restore it")
    for key, annotation in fields.items():
        if key in value:
            check_field(path, key, value[key], annotation)
    return value


def shorten(value: Any) -> str:
    """Returns the representation of a value, cut so that it fits a line of an error message."""
    return _SHORT.repr(value)


def shorten_words(text: str) -> str:
    """Returns the text with the middle of every word of more than 300 characters left out."""
    return _LONG_WORD.sub(r"\1...\2", text)


def unit(annotation: Any) -> str:
    """Returns the unit in an annotation; empty if the annotation has no unit."""
    if typing.get_origin(annotation) is Annotated:
        units = [limit.unit for limit in annotation.__metadata__ if isinstance(limit, Range)]
        return " ".join(filter(None, units))
    parts = typing.get_args(annotation) if _is_union(annotation) else ()
    return next(filter(None, map(unit, parts)), "")


def describe(annotation: Any) -> str:
    """Describes the values that an annotation allows, such as `a whole number, at least 1`."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        limits = _limits(annotation)
        is_named = any(isinstance(limit, OneOf) for limit in limits)
        kind = [] if is_named else [describe(args[0])]
        return ", ".join(kind + [str(limit) for limit in limits if str(limit)])
    if origin is Literal:
        return str(OneOf([str(arg) for arg in args]))
    if _is_union(annotation):
        return " or ".join("None" if arg is types.NoneType else describe(arg) for arg in args)
    if annotation in _NAMES:
        return _NAMES[annotation]
    if dataclasses.is_dataclass(annotation) or _is_kind(annotation, Mapping):
        return "a section"
    if _is_kind(annotation, tuple | Sequence):
        return "a sequence"
    return "a value"


def _limits(annotation: Any) -> list[Range | OneOf]:
    return [limit for limit in annotation.__metadata__ if isinstance(limit, Range | OneOf)]


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _is_kind(annotation: Any, kind: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    return inspect.isclass(origin) and issubclass(origin, kind)


def _fits(value: Any, annotation: Any) -> bool:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        kind, limits = args[0], _limits(annotation)
        if kind is int and any(isinstance(x, Range) and x.at_most is not None for x in limits):
            return type(value) is int and all(limit.holds(value) for limit in limits)
        return _fits(value, kind) and all(limit.holds(value) for limit in limits)
    if origin is Literal:
        return any(value == arg and type(value) is type(arg) for arg in args)
    if _is_union(annotation):
        return any(_fits(value, arg) for arg in args)
    if annotation is types.NoneType:
        return value is None
    if annotation is bool or annotation is str:
        return isinstance(value, annotation)
    if annotation is int:
        return type(value) is int and abs(value) <= _LARGEST
    if annotation is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) <= sys.float_info.max  # a whole number may be larger
    if inspect.isclass(annotation) and dataclasses.is_dataclass(annotation):  # or its fields
        return isinstance(value, (annotation, Mapping))
    if _is_kind(annotation, str):  # a str is a sequence too, and a text enumeration is a str
        return True
    if _is_kind(annotation, Mapping):
        keys = args or (Any, Any)
        return isinstance(value, Mapping) and all(
            _fits(k, keys[0]) and _fits(v, keys[1]) for k, v in value.items()
        )
    if _is_kind(annotation, tuple | Sequence):
        if not isinstance(value, list | tuple):
            return False
        is_fixed = _is_kind(annotation, tuple) and args and args[-1] is not Ellipsis
        kinds = args if is_fixed else (args[0] if args else Any,) * len(value)
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    return True
