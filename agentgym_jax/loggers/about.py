"""What every logger is told of a run, and what it has to be able to do."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol

PROJECT = "agentgym-jax"


@dataclasses.dataclass(frozen=True)
class About:
    """A run.

    Attributes:
      name: for people; that of the run folder.
      run_id: stays the same when the run resumes.
      folder: of this logger alone, within the run folder; exists.
      config: without secrets.
    """

    name: str
    run_id: str
    folder: pathlib.Path
    config: Mapping[str, Any]


class Logger(Protocol):
    """Made with an `About`. All calls come from one thread; any of them may fail."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the finite metrics of a step. Steps come in order, each of them once."""

    def close(self) -> None:
        """Writes what is left."""
