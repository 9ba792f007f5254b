"""Loggers for dashboards; one thread calls `log` for every step in order, then `close`.

Loggers write to the run folder unless an environment variable of their package names a server.
"""

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from agentgym_jax.runs.config_differences import flatten

_PROJECT = "agentgym-jax"
# limits that all MLflow servers accept: characters per parameter, and parameters per call
_LONGEST = 500
_AT_ONCE = 100


@dataclasses.dataclass(frozen=True)
class About:
    """Facts about a run, for loggers."""

    name: str  # name of the run folder, for display
    run_id: str  # id of the run; a resumed run has the same id
    folder: pathlib.Path  # existing folder within the run folder for this logger alone
    config: Mapping[str, Any]  # config of the run without secrets


class TensorBoard:
    """Logger for TensorBoard; `tensorboard --logdir=RUN/loggers/tensorboard` shows the files.

    Uses tensorboardX, because the writers of flax and torch require TensorFlow or torch.
    """

    def __init__(self, tensorboardx: Any, about: About):
        self._writer = tensorboardx.SummaryWriter(logdir=str(about.folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars and flushes them to disk, because a logged step is not logged again."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()


class RunLogger:
    """Logger for a package whose run objects have the methods `log` and `finish`."""

    def __init__(self, run: Any):
        self._run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Records the metrics of a step."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Writes the remaining records."""
        self._run.finish()


def open_wandb(wandb: Any, about: About) -> RunLogger:
    """Returns a logger for Weights & Biases that sends only metrics and config.

    `wandb sync RUN/loggers/wandb/wandb/offline-run-*` uploads an offline run.
    """
    run = wandb.init(
        project=_PROJECT,
        name=about.name,
        id=about.run_id,
        dir=str(about.folder),
        config=dict(about.config),
        mode=os.environ.get("WANDB_MODE", "offline"),
        resume="allow",
        save_code=False,
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            x_disable_meta=True,  # the metadata would include the command line
            x_disable_stats=True,
        ),
    )
    return RunLogger(run)


def open_trackio(trackio: Any, about: About) -> RunLogger:
    """Returns a logger for trackio (`TRACKIO_DIR=RUN/loggers/trackio trackio show`)."""
    run = trackio.init(
        project=_PROJECT,
        name=f"{about.name}-{about.run_id}",  # a resumed run finds its records by this name
        config=dict(about.config),
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return RunLogger(run)


class MLflow:
    """Logger for MLflow; `mlflow ui --backend-store-uri=RUN/loggers/mlflow` shows the files.

    The server chooses the id of the MLflow run, so a file in the logger's folder stores this id.
    """

    def __init__(self, mlflow: Any, about: About):
        self._mlflow = mlflow
        known = about.folder / "run_id"
        # MLflow 3 considers plain files outdated and requires this setting to use them
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        uri = os.environ.get("MLFLOW_TRACKING_URI", about.folder.as_uri())
        self._client = mlflow.tracking.MlflowClient(tracking_uri=uri)
        if known.exists():
            self._run_id = known.read_text().strip()
            self._client.update_run(self._run_id, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(_PROJECT)
        number = (
            experiment.experiment_id if experiment else self._client.create_experiment(_PROJECT)
        )
        self._run_id = self._client.create_run(number, run_name=about.name).info.run_id
        parameters = [
            mlflow.entities.Param(key, json.dumps(value)[:_LONGEST])
            for key, value in flatten(about.config).items()
        ]
        for start in range(0, len(parameters), _AT_ONCE):
            self._client.log_batch(self._run_id, params=parameters[start : start + _AT_ONCE])
        known.write_text(self._run_id + "\n")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Sends all metrics of the step in one call."""
        now = int(1000 * time.time())
        metric = self._mlflow.entities.Metric
        metrics = [metric(_allowed(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """Marks the MLflow run as finished; a resumed run is marked as running again."""
        self._client.set_terminated(self._run_id)


def _allowed(name: str) -> str:
    """Returns a metric name for MLflow: `rollout/success/a+b` becomes `rollout/success.a_b`."""
    # MLflow stores a metric in a file of its name, so `rollout/success` cannot also be a folder
    area, slash, rest = name.partition("/")
    name = area + slash + rest.replace("/", ".")
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-. /") else "_" for c in name)
