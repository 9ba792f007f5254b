"""Logger for MLflow: writes to the run folder unless MLFLOW_TRACKING_URI names a server or a
database.

`mlflow ui --backend-store-uri=RUN/loggers/mlflow` shows the files.
"""

import json
import os
import time
from collections.abc import Mapping

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from agentgym_jax.run_folder import flatten
from agentgym_jax.telemetry.loggers.about import PROJECT, About

# Limits that all MLflow servers accept: characters per parameter, and parameters per call.
_LONGEST = 500
_AT_ONCE = 100


class MLflow:
    """Logger for MLflow.

    The server chooses the id of the MLflow run, so a file in the logger's folder stores this id.
    """

    def __init__(self, about: About):
        known = about.folder / "run_id"
        # MLflow 3 considers plain files outdated and requires this setting to use them.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        uri = os.environ.get("MLFLOW_TRACKING_URI", about.folder.as_uri())
        self._client = MlflowClient(tracking_uri=uri)
        if known.exists():
            self._run_id = known.read_text().strip()
            self._client.update_run(self._run_id, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(PROJECT)
        number = experiment.experiment_id if experiment else self._client.create_experiment(PROJECT)
        self._run_id = self._client.create_run(number, run_name=about.name).info.run_id
        parameters = [
            Param(key, json.dumps(value)[:_LONGEST]) for key, value in flatten(about.config).items()
        ]
        for start in range(0, len(parameters), _AT_ONCE):
            self._client.log_batch(self._run_id, params=parameters[start : start + _AT_ONCE])
        known.write_text(self._run_id + "\n")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Sends all metrics of the step in one call."""
        now = int(1000 * time.time())
        metrics = [Metric(_allowed(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """Marks the MLflow run as finished; a resumed run is marked as running again."""
        self._client.set_terminated(self._run_id)


def _allowed(name: str) -> str:
    """Returns a metric name that MLflow allows: `rollout/success/a+b` becomes
    `rollout/success.a_b`.

    MLflow stores a metric in a file of the same name, so `rollout/success` cannot be a folder as
    well.
    """
    area, slash, rest = name.partition("/")
    name = area + slash + rest.replace("/", ".")
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-. /") else "_" for c in name)
