"""A run that is killed and asked to stop at random points comes to the same end."""

import json
import os
import pathlib
import subprocess
import sys

from tests.faults import runs

ROOT = pathlib.Path(__file__).parents[2]


def test_killed_at_random_points_and_in_a_checkpoint_it_ends_as_if_undisturbed(
    url, cache, undisturbed, tmp_path
):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", url, str(tmp_path / "run"), cache, "2,1,0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    log = tmp_path / "run.log"
    assert done.returncode == 0, done.stderr[-2000:] + log.read_text()[-2000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert sum(figures.values()) == 3 and not any("after the end" in name for name in figures)
    assert "SIGKILL in a checkpoint: inside a checkpoint" in figures
    runs.assert_same(tmp_path / "run", undisturbed)
