"""The metric table lists every emitted metric, and every listed metric is emitted by some job."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from agentgym_jax.telemetry.metrics import METRICS, covers
from tests import fast_programs

pytestmark = pytest.mark.slow  # runs every job
HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
# Metrics of conditions that do not occur in a run on CPU; unit tests cover these metrics
# (test_metrics.py, test_machine.py).
RARE = {"system/device_memory_peak_gib", "run/nonfinite_metrics"}
NOT_METRICS = {"step", "time"}


@pytest.fixture(scope="module")
def emitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    paths = [ROOT, ROOT / "envs", HERE]
    changes = {"PYTHONPATH": os.pathsep.join(map(str, paths)), **fast_programs.variables()}
    command = [sys.executable, str(HERE / "all_jobs.py"), str(folder)]
    done = subprocess.run(command, env=os.environ | changes, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    names = json.loads((folder / "names.json").read_text())
    return set().union(*names.values()) - NOT_METRICS


def test_every_metric_of_the_table_is_emitted_by_some_job(emitted):
    missing = {pattern for pattern in METRICS if not any(covers(pattern, name) for name in emitted)}
    assert missing == RARE


def test_every_emitted_metric_is_in_the_table(emitted):
    assert not {name for name in emitted if not any(covers(pattern, name) for pattern in METRICS)}
