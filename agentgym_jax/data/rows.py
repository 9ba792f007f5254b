"""Rows of data files, whatever the format, each with the place where it stands.

Formats: `.json` (a list), `.jsonl`, `.parquet` (with the extra `[parquet]`), or a folder: that of a
run, whose trajectories are read, any folder of `.jsonl` or `.parquet` files, or one that a builder
of `data/tfds_builders.py` has prepared (with the extra `[tfds]`). What a row must hold is for its
reader to say; every message begins with file, line or row, and field.
"""

import importlib
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from absl import logging

from agentgym_envs.base import extras

try:
    import pyarrow.parquet as parquet
except ImportError:  # an optional extra; said where a file needs it
    parquet = None

Bad = Literal["fatal", "skip"]
T = TypeVar("T")


def read_rows(
    path: str | pathlib.Path, parse: Callable[[Any, str], T], *, bad: Bad, what: str
) -> tuple[list[T], list[str]]:
    """Parses every row of a file or folder.

    Args:
      path: a file or a folder, see above.
      parse: from a row and its place to a value; raises ValueError for a bad row.
      bad: what a bad row does: `fatal` raises, `skip` leaves it out, with a warning that counts.
      what: a row is, for messages, such as `conversation`.

    Returns:
      The values of the good rows in the order of the files, and a message for each bad one.

    Raises:
      FileNotFoundError: there is nothing at the path, or no data file in the folder.
      ValueError: a bad row under `fatal`, no good row at all, or a file that cannot be read.
    """
    if bad not in ("fatal", "skip"):
        raise ValueError(f"bad is {bad!r}; expected 'fatal' or 'skip'")
    good: list[T] = []
    problems: list[str] = []
    for file in data_files(pathlib.Path(path), what):
        for place, load in _rows(file):
            try:
                good.append(parse(load(), place))
            except ValueError as error:
                if bad == "fatal":
                    raise
                problems.append(str(error))
    if problems:
        logging.warning("%s: %d rows left out, the first: %s", path, len(problems), problems[0])
    if not good:
        first = f", the first: {problems[0]}" if problems else ""
        raise ValueError(f"{path} has no usable {what}; {len(problems)} bad ones{first}")
    return good, problems


def data_files(path: pathlib.Path, what: str) -> list[pathlib.Path]:
    """The files behind a path, in the order of their names."""
    if not path.exists():
        raise FileNotFoundError(f"no {what}s at {path}")
    if path.is_file() or _is_tfds(path):
        return [path]
    if (path / "config.json").exists() and (path / "trajectories").is_dir():
        return _of_run(path / "trajectories")
    for suffix in ("jsonl", "parquet"):
        files = sorted(path.glob(f"*.{suffix}"))
        if files:
            return files
    raise FileNotFoundError(f"no .jsonl file in {path}, and no .parquet file")


def _of_run(trajectories: pathlib.Path) -> list[pathlib.Path]:
    """Episodes of training; those of held-out tasks are not for learning."""
    files = [f for f in sorted(trajectories.glob("*.jsonl")) if not f.name.startswith("eval_")]
    if not files:
        raise FileNotFoundError(
            f"no .jsonl file of training in {trajectories}; episodes of held-out tasks (eval_*) are "
            "read only if a file is named"
        )
    return files


def field(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """A field that must be there and of one type."""
    if name not in record:
        raise ValueError(f"{place}: field {name!r} is missing; there are {sorted(record)}")
    if not isinstance(record[name], kind):
        found = type(record[name]).__name__
        raise ValueError(f"{place}: field {name!r} is {found}, expected {kind.__name__}")
    return record[name]


def number(record: Mapping[str, Any], name: str, place: str) -> float | None:
    """An optional number; booleans are none."""
    if name not in record or record[name] is None:
        return None
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{place}: field {name!r} is {value!r}, expected a number")
    return float(value)


def _rows(file: pathlib.Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Place and loader of every row; loading raises ValueError on broken JSON."""
    if file.suffix == ".json":
        values = _parse(file.read_text(encoding="utf-8"), str(file))
        if not isinstance(values, list):
            raise ValueError(f"{file}: expected a JSON list, found {type(values).__name__}")
        for i, value in enumerate(values):
            yield f"{file}, record {i}", lambda value=value: value
    elif file.suffix == ".jsonl":
        with file.open(encoding="utf-8") as lines:
            for i, line in enumerate(lines, 1):
                place = f"{file}, line {i}"
                if line.strip():
                    yield place, lambda line=line, place=place: _parse(line, place)
    elif file.suffix == ".parquet":
        yield from _parquet_rows(file)
    elif _is_tfds(file):
        yield from _tfds_rows(file)
    else:
        raise ValueError(f"{file}: expected a .json or .jsonl file, or .parquet")


def _parquet_rows(file: pathlib.Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Rows as dictionaries: nested columns as lists and dictionaries, or as JSON in a string."""
    if parquet is None:
        raise ValueError(
            f"{file}: reading .parquet needs pyarrow: {extras.install('parquet')}; or convert "
            "the file to .jsonl"
        )
    row = 0
    with parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=256):
            for value in batch.to_pylist():
                yield f"{file}, row {row}", lambda value=value: _unwrapped(value)
                row += 1


def _is_tfds(path: pathlib.Path) -> bool:
    """Whether a builder of TensorFlow Datasets has prepared this folder."""
    return path.is_dir() and (path / "dataset_info.json").exists()


def _tfds_rows(folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Rows of the split `train`, by `tfds.data_source`, which does not need TensorFlow."""
    try:
        tfds = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise ValueError(
            f"{folder}: a dataset of TensorFlow Datasets needs its package: "
            f"{extras.install('tfds')}; or give the file it was made from"
        ) from error
    source = tfds.builder_from_directory(str(folder)).as_data_source(split="train")
    for row in range(len(source)):
        yield f"{folder}, row {row}", lambda row=row: _from_tfds(source[row])


def _from_tfds(value: Any) -> Any:
    """Arrays and bytes as what JSON has: text, lists of turns, null where a number is missing."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping):
        fields = {name: _from_tfds(entry) for name, entry in value.items()}
        return _turns(fields) if set(fields) == {"from", "value", "loss"} else fields
    if hasattr(value, "tolist"):
        return _from_tfds(value.tolist())
    if isinstance(value, list):
        return [_from_tfds(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _turns(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """A sequence of turns is stored as one array per field; -1 is the loss that is null."""
    loss = [None if flag < 0 else bool(flag) for flag in columns["loss"]]
    return [
        {"from": speaker, "value": text, "loss": flag}
        for speaker, text, flag in zip(columns["from"], columns["value"], loss, strict=True)
    ]


def _unwrapped(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of text that hold a JSON list become that list: many tables keep turns so."""
    return {name: _list_or_text(value) for name, value in row.items()}


def _list_or_text(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("["):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value  # its reader names the field and says that it is text


def _parse(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON: {error}") from error
