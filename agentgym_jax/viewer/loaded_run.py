"""A run folder in Python: config, metrics, episodes, scores, figures and the viewer's page."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentgym_jax.episodes.trajectory import TokenSource, Trajectory
from agentgym_jax.evaluation import compare
from agentgym_jax.runs import bucket
from agentgym_jax.runs.frames import data_frame
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.last_lines import summary_lines
from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer import records
from agentgym_jax.viewer.plots import write_plots
from agentgym_jax.viewer.report import checked_folder, write_report


class LoadedRun:
    """Folder of a training run or an evaluation.

    Files are read when they are asked for, so a run can be followed while it is active.

    Attributes:
      folder: Paths of the run folder.
      workdir: Path or address of the folder, as given.
    """

    def __init__(self, folder: RunFolder, workdir: str):
        """Wraps a run folder; `load_run` checks the folder first."""
        self.folder = folder
        self.workdir = workdir

    def __repr__(self) -> str:
        return f"LoadedRun({self.workdir!r})"

    @property
    def config(self) -> dict[str, Any]:
        """Returns the resolved config of the latest start."""
        return self.folder.config()

    @property
    def provenance(self) -> dict[str, Any]:
        """Returns versions, commit, devices and command of the latest start."""
        return self.folder.provenance()

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Returns float64 arrays [n] by metric, with one value for each of the n logged steps.

        `step` has the steps. A metric is NaN at steps without a finite value.
        """
        rows = self._metrics_rows()
        names = sorted({name for row in rows for name in row} - {"step", "time"})
        return {
            name: np.array([row[name] if name in row else np.nan for row in rows], float)
            for name in ("step", "time", *names)
        }

    def metrics_frame(self) -> Any:
        """Returns the metrics as a pandas DataFrame with one row per step.

        Raises:
          ImportError: pandas is not installed.
        """
        return data_frame(self._metrics_rows()).set_index("step")

    def trajectory_steps(self, kind: str | None = None) -> list[int]:
        """Returns the steps with episodes, ascending; `kind` as of `records`."""
        return self.folder.trajectory_steps(self._kind(kind))

    def records(self, step: int | None = None, kind: str | None = None) -> list[dict[str, Any]]:
        """Returns the JSON records of the episodes of one step.

        Args:
          step: Training step; None for the newest with episodes.
          kind: First part of the file name: `step` for training, `eval` for evaluations. None is
            `step`, or `eval` if there are no training episodes.

        Raises:
          FileNotFoundError: There are no such episodes.
        """
        return self.folder.read_trajectories(*self._file(step, kind))

    def trajectories(self, step: int | None = None, kind: str | None = None) -> list[Trajectory]:
        """Returns the episodes of one step as trajectories; arguments and errors of `records`."""
        return self.folder.read_episodes(*self._file(step, kind))

    def trajectories_frame(self) -> Any:
        """Returns a pandas DataFrame with one row for each recorded episode of the run.

        Columns: step, kind (`step` or `eval`), item_id, environment, goal, sample, outcome,
        success, score, reward, turns, tokens, action_tokens, seconds, error.

        Raises:
          ImportError: pandas is not installed.
          ValueError: A file of the folder is damaged.
        """
        files = records.trajectory_files(self.folder.trajectories)
        return data_frame(
            [
                {"step": file.step, "kind": file.kind, **row}
                for file in files
                for row in records.parse_records(file.path, _row)
            ]
        )

    @property
    def scores(self) -> compare.Result:
        """Returns the content of scores.json.

        Raises:
          FileNotFoundError: There was no evaluation.
          ValueError: The file has another format.
        """
        return compare.load_folder(self.folder.path)

    def plots(self) -> dict[str, pathlib.Path]:
        """Draws the figures in `plots/`; returns their paths by name, such as `summary`.

        Raises:
          FileNotFoundError: The folder has no metrics.
          ValueError: The metrics have no values to draw.
        """
        return {path.stem: path for path in write_plots(self.folder.path)}

    def report(self, out: str | os.PathLike | None = None) -> pathlib.Path:
        """Writes the viewer's page to `out`, by default `report.html` of the folder; returns its
        path. `python -m agentgym_jax.view` also adds pictures of the environments.
        """
        target = None if out is None else pathlib.Path(out)
        return write_report(self.folder.path, target, transports={}, max_replays=0)

    def summary(self) -> str:
        """Returns the change of success or loss, and the next commands, as lines of text."""
        return "\n".join(summary_lines(self.workdir, self.config["total_steps"]))

    def _kind(self, kind: str | None) -> str:
        if kind is not None:
            return kind
        return "step" if self.folder.trajectory_steps("step") else "eval"

    def _file(self, step: int | None, kind: str | None) -> tuple[int, str]:
        """Returns the step and the kind of a file of episodes."""
        kind = self._kind(kind)
        steps = self.folder.trajectory_steps(kind)
        if not steps:
            raise FileNotFoundError(f"{self.folder.trajectories} has no files {kind}_*.jsonl")
        return steps[-1] if step is None else step, kind

    def _metrics_rows(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder.metrics_path)


def load_run(workdir: str | os.PathLike) -> LoadedRun:
    """Returns the run in a folder, which may still be active.

    A run in a bucket is copied to a temporary folder without its checkpoints.

    Raises:
      FileNotFoundError: `workdir` has no files of a run.
    """
    path = os.fspath(workdir)
    return LoadedRun(checked_folder(bucket.local_copy(path, with_trajectories=True)), path)


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of one episode."""
    copied = ("item_id", "sample", "outcome", "score", "reward", "seconds", "error")
    row = {name: record[name] for name in copied}
    return row | {
        "environment": records.environment_of(record["item_id"])[0],
        "goal": records.goal_of(record),
        "success": bool(record["success"]),
        "turns": len(record["turns"]),
        "tokens": len(record["tokens"]),
        "action_tokens": sum(source == TokenSource.ACTION for source in record["sources"]),
    }
