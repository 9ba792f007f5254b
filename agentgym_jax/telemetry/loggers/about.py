"""Facts of a run that every logger receives, and the interface of a logger."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol

PROJECT = "agentgym-jax"


@dataclasses.dataclass(frozen=True)
class About:
    """Facts about a run, for loggers."""

    name: str  # name of the run folder, for display
    run_id: str  # id of the run; a resumed run has the same id
    folder: pathlib.Path  # existing folder within the run folder for this logger alone
    config: Mapping[str, Any]  # config of the run without secrets


class Logger(Protocol):
    """Logger for a dashboard; its constructor has one argument, an `About`.

    All methods are called from the same thread, and any call can fail.
    """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Records the finite metrics of a step. Every step is recorded once, in order."""

    def close(self) -> None:
        """Writes the remaining records."""


class RunLogger:
    """Logger for dashboards whose run objects have the methods `log` and `finish`."""

    def __init__(self, run: Any):
        self._run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Records the metrics of a step."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Writes the remaining records."""
        self._run.finish()
