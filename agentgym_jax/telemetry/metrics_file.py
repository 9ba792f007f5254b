"""Reads and writes metrics.jsonl: one line per step, readable while a run writes."""

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from agentgym_jax.runs.atomic_files import disk_errors, write_atomic
from agentgym_jax.runs.json_lines import DamagedFileError, parse_line
from agentgym_jax.telemetry.metrics import lookup


def _to_float(name: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ValueError(
            f"metric {name!r} must be one number, got shape {array.shape} of {array.dtype}; "
            "reduce it before it is logged"
        )
    return float(array.reshape(()))


class MetricWriter(contextlib.AbstractContextManager["MetricWriter"]):
    """Writer that appends one JSON object per step: `{"step": n, "time": seconds since 1970, ...}`.

    NaN and infinite values are written as null and counted as `run/nonfinite_metrics`. `last_step`
    is the step of the last line; None if the file has no line.
    """

    def __init__(self, path: str | os.PathLike, *, is_enabled: bool = True):
        """Opens `path` for appending; first removes a partial last line left by a killed run.

        With `is_enabled=False` the file is only read, because another process writes it.
        """
        self.path = pathlib.Path(path)
        self._is_enabled = is_enabled
        self._file: IO[str] | None = None
        self.last_step: int | None = None
        self.truncate_after(math.inf)

    def truncate_after(self, step: float) -> None:
        """Removes the lines of later steps, because a resumed run repeats these steps."""
        self.close()
        kept = [line for line in _read_lines(self.path) if line[1]["step"] <= step]
        text = "".join(line + "\n" for line, _ in kept)
        self.last_step = kept[-1][1]["step"] if kept else None
        if not self._is_enabled:
            return
        if not self.path.exists() or self.path.read_bytes() != text.encode():
            write_atomic(self.path, text)
        self._file = open(self.path, "a", encoding="utf-8", newline="\n")

    def write(self, step: int, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Appends the line of one step and returns its values as plain floats.

        Raises ValueError for invalid names, steps and values. If the disk is full, raises
        RunFolderError and closes this writer; readers skip a partial line at the end of the file.
        """
        if self._file is None and self._is_enabled:
            raise ValueError(f"{self.path} is closed; make a new MetricWriter to continue")
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(
                f"{self.path}: step {step} after step {self.last_step}. A step has one line: "
                "merge its values, and call truncate_after when a run resumes."
            )
        for name in metrics:
            lookup(name)
        values = {name: _to_float(name, value) for name, value in metrics.items()}
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            values["run/nonfinite_metrics"] = float(len(bad))
        line: dict[str, float | None] = {"step": int(step), "time": round(time.time(), 3)}
        line |= {k: v if math.isfinite(v) else None for k, v in values.items()}
        self._append(json.dumps(line, allow_nan=False) + "\n")
        self.last_step = step
        return values

    def _append(self, text: str) -> None:
        if self._file is None:
            return
        with disk_errors(self.path):
            try:
                self._file.write(text)
                self._file.flush()
            except OSError:
                file, self._file = self._file, None
                with contextlib.suppress(OSError):  # closing the file tries to write again
                    file.close()
                raise

    def sync(self) -> None:
        """Waits until all lines are on disk, so that no checkpoint is newer than the metrics."""
        if self._file is not None:
            with disk_errors(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; later writes raise an error."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_lines(path: pathlib.Path) -> list[tuple[str, dict[str, Any]]]:
    """Returns text and record of each complete line; a killed run can leave a partial line."""
    if not path.exists():
        return []
    # read as bytes, because a partial line may end inside a character
    whole, newline, _ = path.read_bytes().rpartition(b"\n")
    found: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(whole.split(b"\n") if newline else (), 1):
        record = parse_line(f"{path}, line {number}", line, _checked)
        if found and record["step"] <= found[-1][1]["step"]:
            raise DamagedFileError(
                f"{path}, line {number} has step {record['step']} after step "
                f"{found[-1][1]['step']}; steps must grow, so remove that line"
            )
        found.append((line.decode("utf-8"), record))
    return found


def _checked(record: Any) -> dict[str, Any]:
    """Returns the record of a line if it has an integer `step` and its values are numbers or null."""
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        raise ValueError("no integer `step`")
    wrong = [k for k, v in record.items() if v is not None and type(v) not in (int, float)]
    if wrong:
        raise ValueError(f"{wrong[0]} is no number")
    for value in record.values():
        float(value or 0)  # raises OverflowError for a whole number beyond the floats
    return record


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads all lines of metrics.jsonl in order; null becomes NaN. A run may be writing them."""
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; give the workdir of a run that has started"
        )
    records = [record for _, record in _read_lines(path)]
    return [{k: math.nan if v is None else v for k, v in record.items()} for record in records]
