"""metrics.jsonl: written a line a step, read while a run writes, cut back when it resumes."""

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from agentgym_jax.metrics import lookup
from agentgym_jax.run_folder import disk_errors, write_atomic


def to_float(name: str, value: Any) -> float:
    """A Python, NumPy or device scalar as a plain float."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ValueError(
            f"metric {name!r} must be one number, got shape {array.shape} of {array.dtype}; "
            "reduce it before it is logged"
        )
    return float(array.reshape(()))


class MetricWriter:
    """Appends one JSON object per step: `{"step": n, "time": seconds since 1970, ...}`.

    A value that is not finite is written as null (JSON has no NaN) and counted in
    `run/nonfinite_metrics` of its line and in `nonfinite`.

    Attributes:
      nonfinite: values that were not finite since this object was made.
    """

    def __init__(self, path: str | os.PathLike):
        """Opens `path` for appending; a torn last line of a killed run is removed first."""
        self.path = pathlib.Path(path)
        self.nonfinite = 0
        self._file: IO[str] | None = None
        self._last_step: int | None = None
        self._rewrite(keep_until=None)

    def _rewrite(self, keep_until: int | None) -> None:
        """Drops a torn last line and lines after step `keep_until`, then (re)opens the file."""
        self.close()
        lines = _complete_lines(self.path)
        steps = [_parse(self.path, i, line)["step"] for i, line in enumerate(lines, 1)]
        kept = [
            line
            for line, step in zip(lines, steps, strict=True)
            if keep_until is None or step <= keep_until
        ]
        text = "".join(line + "\n" for line in kept)
        if not self.path.exists() or self.path.read_bytes() != text.encode():
            write_atomic(self.path, text)
        self._last_step = steps[len(kept) - 1] if kept else None
        self._file = open(self.path, "a", encoding="utf-8", newline="\n")

    @property
    def last_step(self) -> int | None:
        """Step of the last line; None if there is none."""
        return self._last_step

    def truncate_after(self, step: int) -> None:
        """Drops the lines of steps later than `step`, which a resumed run does again.

        Afterwards the file is what an uninterrupted run would have written so far. The
        new file replaces the old one in one rename.
        """
        self._rewrite(keep_until=step)

    def write(self, step: int, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Appends the line of one step and returns its values as plain floats.

        Args:
          step: optimiser steps done; larger than that of the line before.
          metrics: names of the table to scalars (Python, NumPy or one-element device arrays).

        Raises:
          ValueError: a name is not in the table, the step was written before, or a value is
            not a scalar. Nothing is written then.
          RunFolderError: the disk is full. A part of the line may be in the file, which readers
            skip and the next MetricWriter removes; this one is closed.
        """
        if self._file is None:
            raise ValueError(f"{self.path} is closed; make a new MetricWriter to go on")
        if self._last_step is not None and step <= self._last_step:
            raise ValueError(
                f"{self.path}: step {step} after step {self._last_step}. A step has one line: "
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
                self._abandon()
                raise
        self._last_step = step
        return values

    def sync(self) -> None:
        """Forces the lines to the disk; before a checkpoint, so that it never runs ahead of them."""
        if self._file is not None:
            with disk_errors(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; further writes raise."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def _abandon(self) -> None:
        """Closes a file that cannot be written, with what did not get into it."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # closing tries to write once more
                file.close()

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _complete_lines(path: pathlib.Path) -> list[str]:
    """Lines that end in a newline: what follows the last one was cut by a kill."""
    if not path.exists():
        return []
    # Bytes: a cut may fall inside a character.
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
    """All lines of metrics.jsonl in order; null becomes NaN. Safe while a run writes.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a line other than a torn last one is damaged; the message has its number.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; give the workdir of a run that has started"
        )
    return [
        {
            name: math.nan if value is None else value
            for name, value in _parse(path, number, line).items()
        }
        for number, line in enumerate(_complete_lines(path), 1)
    ]
