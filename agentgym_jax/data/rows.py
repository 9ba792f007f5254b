"""Reads the rows of data files in every supported format, each row with its place in the file.

Formats: `.json` (a list), `.jsonl`, `.parquet`, folders (a run, a set of files of one of these
kinds, or the output of a builder in `data/tfds_builders.py`), and datasets of TensorFlow Datasets by
name: `tfds:NAME` or `tfds:NAME@SPLIT`, such as `tfds:agent_trajectories@train[:100]`. The case of an
ending has no meaning. Files of a folder whose names begin with a dot, such as macOS's `._NAME`, are no
data.
"""

import codecs
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from absl import logging

from agentgym_envs.base.protocol import LARGEST_NUMBER, read_json
from agentgym_jax.runs.run_folder import visible

Bad = Literal["fatal", "skip"]
_LONGEST_MESSAGE = 800
_ENDINGS = (".jsonl", ".parquet", ".json")  # of files in a folder; those of the first are read
_NAMED = "tfds:"
_COMPRESSED = (".gz", ".zst", ".xz", ".bz2", ".zip", ".tar", ".tgz")
# first bytes of files whose name promises JSON, with what they are
_FOREIGN = {
    b"\x1f\x8b": "compressed with gzip: decompress it",
    b"(\xb5/\xfd": "compressed with zstd: decompress it",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"PAR1": "a table: give it the ending .parquet",
}
# fields in which other formats have parts of a conversation that is not text
_NO_TEXT = ("tool_calls", "function_call", "tools", "images", "videos", "audios")
_NOTHING: tuple[Any, ...] = (None, "", [], {}, "[]", "null")
T = TypeVar("T")


def read_rows(
    path: str | pathlib.Path, parse: Callable[[Any, str], T], *, bad: Bad, what: str
) -> list[T]:
    """Parses every row of a source; returns the values in the order of the files.

    Args:
      path: File or folder in a supported format, or the name of a dataset.
      parse: Converts a row and its place to a value; raises ValueError for an invalid row.
      bad: Treatment of invalid rows: `fatal` raises ValueError, `skip` logs their number.
      what: Name of the rows in messages, such as `conversation`.

    Raises:
      FileNotFoundError: The path does not exist, or the folder has no data file.
      ValueError: A row is invalid with `fatal`, no row is valid, or a file cannot be read.
    """
    if bad not in ("fatal", "skip"):
        raise ValueError(f"bad is {bad!r}; expected 'fatal' or 'skip'")
    good: list[T] = []
    problems: list[str] = []
    for place, row in _all_rows(path, what):
        try:
            # lines of a file are bytes, so that an invalid one can be left out
            value = _parse_line(row, place) if isinstance(row, bytes) else row
            good.append(parse(value, place))
        except ValueError as error:
            text = _one_line(str(error))
            if bad == "fatal":
                raise ValueError(text) from error
            problems.append(text)
    if problems:
        logging.warning("%s: %d rows left out, the first: %s", path, len(problems), problems[0])
    if not good and not problems:
        raise ValueError(f"{path} has no {what}: there is no row in it")
    if not good:
        first = f"{len(problems)} bad ones, the first: {problems[0]}"
        raise ValueError(f"{path} has no usable {what}; {first}")
    return good


def _all_rows(path: str | pathlib.Path, what: str) -> Iterator[tuple[str, Any]]:
    """Yields place and value of the rows of every file of a source."""
    if str(path).startswith(_NAMED):
        yield from _named_rows(str(path))
        return
    try:
        for file in _data_files(pathlib.Path(path), what):
            yield from _rows(file)
    except OSError as error:
        if error.errno is None:  # of this module, with its own words
            raise
        raise ValueError(
            f"{error.filename or path} cannot be read ({error.strerror}): make it readable for this "
            "process, or name other data"
        ) from error


def _data_files(path: pathlib.Path, what: str) -> list[pathlib.Path]:
    if not path.exists():
        raise FileNotFoundError(f"no {what}s at {path}{_target_of(path)}")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path} is no file on a disk, such as a pipe: write the rows to a file")
    entries = visible(path.iterdir())
    if _is_tfds(path):
        return [path]
    is_run = (path / "config.json").exists() and (path / "trajectories").is_dir()
    if is_run:
        path = path / "trajectories"
        entries = visible(path.iterdir())
    by_ending = {e: [f for f in entries if f.suffix.lower() == e] for e in _ENDINGS}
    found = [ending for ending, paths in by_ending.items() if paths]
    if not found:
        names = ", ".join(entry.name for entry in entries)
        there = _one_line(f"it has {names}", 200) if names else "it is empty"
        raise FileNotFoundError(f"no .jsonl file in {path}, and no .parquet or .json file; {there}")
    # held-out tasks must not be trained on, neither from a run nor from its exported traces
    files = [f for f in by_ending[found[0]] if not f.name.startswith("eval_")]
    left_out = [f.name for f in by_ending[found[0]] if f not in files]
    if not files:
        raise FileNotFoundError(
            f"no {found[0]} file of training in {path}; episodes of held-out tasks (eval_*) are read "
            "only if a file is named"
        )
    for file in files:
        _check_is_file(file)
    if left_out and not is_run:  # a run has such files after each evaluation
        text = "%s: %d files are left out, because eval_* names episodes of held-out tasks: %s"
        logging.warning(text, path, len(left_out), _one_line(", ".join(left_out)))
    if found[1:]:
        text = "%s: only its %d %s files are read, not those with the ending %s"
        logging.warning(text, path, len(files), found[0], " or ".join(found[1:]))
    return files


def _check_is_file(entry: pathlib.Path) -> None:
    """Raises ValueError if an entry of a folder has the name of a data file but is none."""
    if entry.is_file():
        return
    if entry.is_dir():
        found = "a folder with the ending of a file: rename it, or name it instead of its parent"
    elif entry.is_symlink():
        found = f"no file{_target_of(entry)}: mend or remove the link"
    else:
        found = "no file on a disk, such as a pipe: remove it"
    raise ValueError(f"{entry} is {found}")


def _target_of(path: pathlib.Path) -> str:
    """Returns a remark on a symbolic link; empty for other paths."""
    return f", a link to {os.readlink(path)}" if path.is_symlink() else ""


def _one_line(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Shortens a message, which may quote a value of any length."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[:longest]}..."


def field(record: Any, name: str, kind: type, place: str) -> Any:
    """Returns a required field of a JSON object after checking its type."""
    if not isinstance(record, dict):
        raise ValueError(f"{place}: expected an object, found {type(record).__name__}")
    if name not in record:
        raise ValueError(f"{place}: field {name!r} is missing; there are {sorted(record)}")
    if not isinstance(record[name], kind):
        found = type(record[name]).__name__
        raise ValueError(f"{place}: field {name!r} is {found}, expected {kind.__name__}")
    return record[name]


def check_is_text(record: Mapping[str, Any], place: str) -> None:
    """Raises ValueError if a row or turn has parts that are no text, which would be lost."""
    found = [name for name in _NO_TEXT if record.get(name) not in _NOTHING]
    if found:
        raise ValueError(
            f"{place}: field {found[0]!r} would be lost, because only the text of turns is read; "
            "write it in 'value', or remove the field"
        )


def number(record: Mapping[str, Any], name: str, place: str) -> float | None:
    """Returns an optional number of a row; a boolean, NaN or infinity is an error."""
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{place}: field {name!r} is {value!r:.100}, expected a number")
    if not abs(value) <= LARGEST_NUMBER:
        expected = f"a number of at most {LARGEST_NUMBER:g} in size"
        raise ValueError(f"{place}: field {name!r} is {value!r:.100}, expected {expected}")
    return float(value)


def _rows(file: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Yields place and value of every row; for `.jsonl`, the value is the unparsed line (bytes)."""
    ending = file.suffix.lower()
    if ending == ".json":
        values = _parse_json(
            file.read_bytes(), str(file), "one list of rows; rows in lines are .jsonl"
        )
        if not isinstance(values, list):
            fields = f" with the fields {sorted(values)}" if isinstance(values, dict) else ""
            text = f"{file}: expected a JSON list, found {type(values).__name__}{fields}"
            raise ValueError(_one_line(text))
        yield from ((f"{file}, record {i}", value) for i, value in enumerate(values))
    elif ending == ".jsonl":
        with file.open("rb") as lines:
            for i, line in enumerate(lines, 1):
                if line.removeprefix(codecs.BOM_UTF8).strip():
                    yield f"{file}, line {i}", line
    elif ending == ".parquet":
        yield from _parquet_rows(file)
    elif _is_tfds(file):
        yield from _tfds_rows(file)
    else:
        remedy = "decompress" if ending in _COMPRESSED else "convert"
        found = f"the ending {ending}" if ending else "no ending"
        raise ValueError(f"{file}: it has {found}; expected .jsonl, .parquet or .json: {remedy} it")


def _parquet_rows(file: pathlib.Path) -> Iterator[tuple[str, Any]]:
    import pyarrow  # noqa: PLC0415 - most runs read no table
    import pyarrow.parquet as parquet  # noqa: PLC0415

    row = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=256):
                for value in batch.to_pylist():
                    yield f"{file}, row {row}", {k: _list_or_text(x) for k, x in value.items()}
                    row += 1
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{file}: the file cannot be read after row {row}: {reason}") from error


def _is_tfds(path: pathlib.Path) -> bool:
    return path.is_dir() and (path / "dataset_info.json").exists()


def _tfds_rows(folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Yields the rows of the split `train`; reading a data source works without TensorFlow."""
    import tensorflow_datasets as tfds  # noqa: PLC0415 - two seconds that most runs do not need

    yield from _source_rows(
        str(folder),
        lambda: tfds.builder_from_directory(str(folder)).as_data_source(split="train"),
        "a folder with dataset_info.json is read as one that its builders have written. Write the rows "
        "of a dataset of Hugging Face as .jsonl or .parquet (to_json, to_parquet)",
    )


def _named_rows(name: str) -> Iterator[tuple[str, Any]]:
    """Yields the rows of a dataset by name, which is downloaded if it is not there."""
    import tensorflow_datasets as tfds  # noqa: PLC0415

    dataset, _, split = name.removeprefix(_NAMED).partition("@")
    folder = os.environ.get("TFDS_DATA_DIR")
    yield from _source_rows(
        name,
        lambda: tfds.data_source(dataset, split=split or "train", data_dir=folder),
        "expected tfds:NAME@SPLIT of a dataset that it knows or that is prepared under TFDS_DATA_DIR",
    )


def _source_rows(
    name: str, open_source: Callable[[], Sequence[Any]], remedy: str
) -> Iterator[tuple[str, Any]]:
    """Yields the rows of a data source; raises ValueError with the remedy if it cannot be read."""
    try:
        source = open_source()
        for row in range(len(source)):
            yield f"{name}, row {row}", _from_tfds(source[row])
    except Exception as error:  # the package, its builders and downloads raise errors of any kind
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{name}: TensorFlow Datasets cannot read it ({type(error).__name__}: {reason}); {remedy}"
        ) from error


def _from_tfds(value: Any) -> Any:
    """Converts arrays and bytes to JSON values; NaN becomes null."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping):
        fields = {name: _from_tfds(entry) for name, entry in value.items()}
        if set(fields) != {"from", "value", "loss"}:
            return fields
        # a sequence of turns is stored as one array per field; a loss of -1 means null
        loss = [None if flag < 0 else bool(flag) for flag in fields["loss"]]
        turns = zip(fields["from"], fields["value"], loss, strict=True)
        return [{"from": speaker, "value": text, "loss": flag} for speaker, text, flag in turns]
    if hasattr(value, "tolist"):
        return _from_tfds(value.tolist())
    if isinstance(value, list):
        return [_from_tfds(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _list_or_text(value: Any) -> Any:
    """Parses text that contains a JSON list; some tables store turns as text."""
    if not isinstance(value, str) or not value.startswith("["):
        return value
    try:
        return read_json(value)
    except ValueError:
        return value  # the caller's error message names the field and says that it is text


def _parse_line(line: bytes, place: str) -> Any:
    """Returns the row in a line of a `.jsonl` file."""
    value = _parse_json(line, place, "one row per line; one list of all rows is .json")
    if isinstance(value, list):
        raise ValueError(
            f"{place}: expected a row, found a list; a file that is one list has the ending .json"
        )
    return value


def _parse_json(data: bytes, place: str, form: str) -> Any:
    """Returns a JSON value; `form` is what the ending of the file promises."""
    try:
        return read_json(data)
    except ValueError as error:
        for start, remedy in _FOREIGN.items():
            if data.startswith(start):
                raise ValueError(f"{place}: the file is {remedy}") from error
        if isinstance(error, UnicodeDecodeError):
            line = data.count(b"\n", 0, error.start) + 1
            where = f"{place}, line {line}" if data.count(b"\n") > 1 else place
            raise ValueError(
                f"{where}: byte 0x{data[error.start]:02x} is not UTF-8 ({error.reason}); save the "
                "file as UTF-8"
            ) from error
        if not data.strip():
            raise ValueError(f"{place}: the file is empty; expected {form}") from error
        if b"\0" in data:
            raise ValueError(
                f"{place}: not JSON: it has null bytes, as in UTF-16; save the file as UTF-8"
            ) from error
        raise ValueError(f"{place}: not JSON: {error}; expected {form}") from error
