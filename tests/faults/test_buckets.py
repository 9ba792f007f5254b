"""Runs in a bucket equal local runs, also if they crash and resume on another machine."""

import jax
import numpy as np
import pytest

from agentgym_jax.export import export
from agentgym_jax.jobs.run import Run
from agentgym_jax.runs import bucket
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.last_lines import summary_lines
from agentgym_jax.training.job_kinds import run_job
from agentgym_jax.viewer.report import write_report
from tests.faults import runs

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def staging(monkeypatch, tmp_path):
    """Returns the folder of all staging folders."""
    monkeypatch.setattr(bucket, "_STAGING", str(tmp_path / "staging"))
    return tmp_path / "staging"


def names(folder):
    """Returns the files of a run, except arrays, whose names are random, and local ones."""
    found = {str(path.relative_to(folder)) for path in bucket.walk(folder)}
    return {x for x in found if "/d/" not in x and not x.startswith((".lock", "logs/"))}


def assert_same_result(workdir, reference):
    (step, params, *found), (last, wanted, *expected) = map(runs.result, (workdir, reference))
    assert step == last and found == expected
    jax.tree.map(np.testing.assert_array_equal, params, wanted)
    assert names(workdir) == names(reference)


def test_a_run_in_a_bucket_has_the_files_of_a_local_run(url, undisturbed, tmp_path):
    workdir = tmp_path / "bucket" / "run"
    assert not runs.train(runs.config(url), f"file://{workdir}")
    assert_same_result(workdir, undisturbed)
    for name in ("config.json", "tokenizer/tokenizer.json", "model/config.json"):
        assert (workdir / name).read_bytes() == (undisturbed / name).read_bytes()


class Crash(Exception):
    pass


@pytest.mark.parametrize(
    ("where", "number"),
    [
        pytest.param((RunFolder, "write_trajectories"), 3, id="before episodes are written"),
        pytest.param((Run, "log_step"), 2, id="before metrics are written"),
        pytest.param((Run, "save"), 1, id="before the first checkpoint"),
        pytest.param((Run, "save"), 3, id="before the last checkpoint"),
    ],
)
def test_a_crashed_run_resumes_from_the_bucket_alone(
    url, undisturbed, tmp_path, monkeypatch, where, number
):
    workdir, calls, original = tmp_path / "bucket" / "run", [], getattr(*where)

    def dying(*args):
        calls.append(args)
        if len(calls) == number:
            patch.setattr(bucket.Mirror, "push", lambda *args: None)  # as if killed
            raise Crash
        return original(*args)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(*where, dying)
        runs.train(runs.config(url), f"file://{workdir}")
    monkeypatch.setattr(bucket, "_STAGING", str(tmp_path / "another machine"))
    assert not runs.train(runs.config(url), f"file://{workdir}")
    assert_same_result(workdir, undisturbed)


def test_figures_of_a_run_in_a_bucket_are_in_the_bucket(url, tmp_path):
    workdir = tmp_path / "bucket" / "run"
    run_job(runs.config(url, steps=1), f"file://{workdir}")
    assert (workdir / "plots" / "summary.png").is_file()
    lines = summary_lines(f"file://{workdir}", 1)
    assert any(f"figures: file://{workdir}/plots/summary.png" in line for line in lines)


def test_a_run_in_a_bucket_can_be_exported_and_viewed(undisturbed, tmp_path):
    files = []
    for name, source in (("local", str(undisturbed)), ("bucket", f"file://{undisturbed}")):
        target = export(source, str(tmp_path / name), dtype="float32", overwrite=False)
        files.append({path.name: path.read_bytes() for path in sorted(target.iterdir())})
    assert files[0] == files[1] and "model.safetensors" in files[0]
    copy = bucket.local_copy(f"file://{undisturbed}", with_trajectories=True)
    page = write_report(copy, tmp_path / "page.html", transports={}, max_replays=0)
    assert page.stat().st_size > 10_000
