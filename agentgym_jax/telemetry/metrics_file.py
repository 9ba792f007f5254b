"""Reads and writes metrics.jsonl: one line per step, readable while a run writes, truncated when a
run resumes.
"""

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from agentgym_jax.run_folder import disk_errors, write_atomic
from agentgym_jax.telemetry.metrics import lookup


def to_float(name: str, value: Any) -> float:
    """Converts a Python, NumPy or device scalar to a plain float."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ValueError(
            f"metric {name!r} must be one number, got shape {array.shape} of {array.dtype}; "
            "reduce it before it is logged"
        )
    return float(array.reshape(()))


class MetricWriter:
    """Writer that appends one JSON object per step: `{"step": n, "time": seconds since 1970, ...}`.

    NaN and infinite values are written as null, because JSON has no NaN. Their number is written as
    `run/nonfinite_metrics` in the same line, and added to `nonfinite`.

    Attributes:
      last_step: Step of the last line; None if the file has no line.
      nonfinite: Number of NaN and infinite values since this writer was created.
    """

    def __init__(self, path: str | os.PathLike):
        """Opens `path` for appending; first removes a partial last line left by a killed run."""
        self.path = pathlib.Path(path)
        self.nonfinite = 0
        self._file: IO[str] | None = None
        self.last_step: int | None = None
        self._rewrite(keep_until=None)

    def _rewrite(self, keep_until: int | None) -> None:
        """Removes a partial last line and the lines after step `keep_until`, then opens the file."""
        self.close()
        lines = _complete_lines(self.path)
        steps = [_parse(self.path, i, line)["step"] for i, line in enumerate(lines, 1)]
        kept = [i for i, step in enumerate(steps) if keep_until is None or step <= keep_until]
        text = "".join(lines[i] + "\n" for i in kept)
        if not self.path.exists() or self.path.read_bytes() != text.encode():
            write_atomic(self.path, text)
        self.last_step = steps[kept[-1]] if kept else None
        self._file = open(self.path, "a", encoding="utf-8", newline="\n")

    def truncate_after(self, step: int) -> None:
        """Removes the lines of steps after `step`, because a resumed run repeats these steps.

        Afterwards the file equals that of an uninterrupted run up to `step`. A new file is written
        and then renamed to the old name.
        """
        self._rewrite(keep_until=step)

    def write(self, step: int, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Appends the line of one step and returns its values as plain floats.

        Args:
          step: Number of training steps done; larger than in the previous line.
          metrics: Scalars (Python, NumPy or one-element device arrays), by names in the table.

        Raises:
          ValueError: A name is not in the table, the step was written before, or a value is not a
            scalar. Nothing is written in these cases.
          RunFolderError: The disk is full, and this writer is closed. The file may end in a partial
            line; readers skip it and the next MetricWriter removes it.
        """
        if self._file is None:
            raise ValueError(f"{self.path} is closed; make a new MetricWriter to continue")
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(
                f"{self.path}: step {step} after step {self.last_step}. A step has one line: "
                "merge its values, and call truncate_after when a run resumes."
            )
        for name in metrics:
            lookup(name)
        values = {name: to_float(name, value) for name, value in metrics.items()}
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            self.nonfinite += len(bad)
            values["run/nonfinite_metrics"] = float(len(bad))
        line: dict[str, float | None] = {"step": int(step), "time": round(time.time(), 3)}
        line |= {k: v if math.isfinite(v) else None for k, v in values.items()}
        text = json.dumps(line, allow_nan=False) + "\n"
        with disk_errors(self.path):
            try:
                self._file.write(text)
                self._file.flush()
            except OSError:
                file, self._file = self._file, None
                with contextlib.suppress(OSError):  # closing the file tries to write again
                    file.close()
                raise
        self.last_step = step
        return values

    def sync(self) -> None:
        """Waits until all lines are on the disk.

        Call this method before saving a checkpoint, so that a checkpoint is never newer than its
        lines.
        """
        if self._file is not None:
            with disk_errors(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; later writes raise an error."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _complete_lines(path: pathlib.Path) -> list[str]:
    """Returns the lines that end in a newline; a killed run can leave a partial last line."""
    if not path.exists():
        return []
    # The file is read as bytes, because a partial line may end inside a character.
    whole, newline, _ = path.read_bytes().rpartition(b"\n")
    return whole.decode("utf-8").split("\n") if newline else []


def _parse(path: pathlib.Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {number} is not JSON ({error.msg}); remove or repair that line"
        ) from None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise ValueError(f"{path}, line {number} has no integer `step`; remove or repair that line")
    return record


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads all lines of metrics.jsonl in order; null becomes NaN.

    A run may write at the same time.

    Raises:
      FileNotFoundError: The file does not exist.
      ValueError: A complete line is invalid; the message has its number.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; give the workdir of a run that has started"
        )
    records = [_parse(path, number, line) for number, line in enumerate(_complete_lines(path), 1)]
    return [{k: math.nan if v is None else v for k, v in record.items()} for record in records]
