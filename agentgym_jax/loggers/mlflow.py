"""MLflow: files in the run folder unless MLFLOW_TRACKING_URI names a server or a database.

`mlflow ui --backend-store-uri=RUN/loggers/mlflow` shows them.
"""

import json
import os
import time
from collections.abc import Mapping

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from agentgym_jax.loggers.about import PROJECT, About
from agentgym_jax.run_folder import flatten

_URI = "MLFLOW_TRACKING_URI"
_LONGEST = 500  # characters of a parameter that every server takes
_AT_ONCE = 100  # parameters of one call


class MLflow:
    """Its server names the run, so that name is kept beside the files."""

    def __init__(self, about: About):
        known = about.folder / "run_id"
        # MLflow 3 calls plain files outdated and asks for this word to go on with them.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        uri = os.environ[_URI] if _URI in os.environ else about.folder.as_uri()
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
        """All metrics of the step in one call."""
        now = int(1000 * time.time())
        metrics = [Metric(_allowed(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """Marks the run as finished; a resumed one is running again."""
        self._client.set_terminated(self._run_id)


def _allowed(name: str) -> str:
    """Letters, digits and `_-. /` are allowed: `rollout/success/a+b` is `rollout/success.a_b`.

    A file is named like its metric, so that `rollout/success` cannot be a folder as well.
    """
    area, slash, rest = name.partition("/")
    name = area + slash + rest.replace("/", ".")
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-. /") else "_" for c in name)
