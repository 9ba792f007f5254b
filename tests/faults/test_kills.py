"""Runs that are killed or stopped at random points, and end like an undisturbed run."""

import json
import pathlib

import pytest

from tests.faults import runs
from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_or_stopped_run_ends_like_an_undisturbed_one(url, undisturbed, tmp_path):
    arguments = [url, tmp_path / "run", "2,1", "--unfinished"]
    done = run_python("-m", "tests.faults.kills", *arguments, PYTHONPATH=str(ROOT))
    log = tmp_path / "run.log"
    assert done.returncode == 0, done.stderr[-2000:] + log.read_text()[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures == {"SIGKILL in a checkpoint: inside a checkpoint": 1, "SIGTERM: stopped": 1}
    runs.train(runs.config(url), tmp_path / "run")
    runs.assert_same(tmp_path / "run", undisturbed)
