"""Runs of several processes equal runs of one process, also after a process is lost.

All runs of a comparison have the same number of devices.
"""

import signal
import sys
import time

import jax
import numpy as np
import pytest

from agentgym_jax.learner import stored_weights
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import read_metrics
from tests.processes import launch
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

STEPS = 7
OVERRIDES = (f"--config.total_steps={STEPS}", "--config.evaluation.every=4")
STALE = (*OVERRIDES, "--config.rollout.max_off_policy_steps=1", "--config.mesh.tensor=2")

AHEAD = (
    *(*OVERRIDES, "--config.rollout.max_off_policy_steps=3", "--config.horizon.each.turns=(3,4)"),
    "--config.horizon.groups.OpenDoorLoc.turns=(3,4)",
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Returns the folder of an undisturbed run of one process."""
    return finished(tmp_path_factory.mktemp("one") / "run", 1, *OVERRIDES)


def finished(workdir, count, *overrides):
    statuses, outputs = launch.train(workdir, count, *overrides)
    assert statuses == [0] * count, outputs[0][-3000:] + outputs[-1][-3000:]
    return workdir


def newest_params(workdir):
    source = resolve(str(workdir))
    return stored_weights.load(source, Policy(source.config))


def assert_same_run(workdir, reference):
    """Compares tokens exactly, and weights to float tolerance."""
    folder, expected = RunFolder(workdir), RunFolder(reference)
    for kind in ("step", "eval"):
        assert folder.trajectory_steps(kind) == expected.trajectory_steps(kind)
        for step in expected.trajectory_steps(kind):
            pairs = zip(
                folder.read_trajectories(step, kind),
                expected.read_trajectories(step, kind),
                strict=True,
            )
            for own, other in pairs:
                for key in ("item_id", "sample", "tokens", "reward", "outcome"):
                    assert own[key] == other[key]
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-4),
        newest_params(workdir),
        newest_params(reference),
    )
    steps = [line["step"] for line in read_metrics(expected.metrics_path)]
    assert [line["step"] for line in read_metrics(folder.metrics_path)] == steps


def wait_for_step(folder, step):
    deadline = time.monotonic() + launch.LIMIT_S
    while not folder.metrics_path.exists() or f'"step": {step},' not in (
        folder.metrics_path.read_text()
    ):
        assert time.monotonic() < deadline, f"no step {step} in time"
        time.sleep(0.02)


@pytest.mark.parametrize(("count", "decode_tensor"), [(2, 0), (2, 2), (4, 0)])
def test_processes_play_the_episodes_of_one_process(tmp_path, reference, count, decode_tensor):
    mesh = f"--config.mesh.decode_tensor={decode_tensor}"
    run = finished(tmp_path / "run", count, *OVERRIDES, mesh)
    assert_same_run(run, reference)
    shards = {path.name for path in (run / "trajectories").glob("step_000001*")}
    assert len(shards) == count
    assert not list((run / "logs").glob(f"process_{count}")) and (run / "logs/process_1").is_dir()


def test_processes_share_a_bucket(tmp_path, reference, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # has the staging folders
    run = tmp_path / "bucket" / "run"
    command = launch.train_command(f"file://{run}", *OVERRIDES)
    started = launch.finish(command, 2, devices=4, folder=tmp_path / "logs")
    assert started[0] == [0, 0], started[1]
    assert_same_run(run, reference)
    assert len(list((run / "trajectories").glob("step_000001*"))) == 2
    assert len(list((tmp_path / ".cache/agentgym_jax/staging").glob("*/run"))) == 2


def test_stale_rollouts_on_a_tensor_mesh_equal_those_of_one_process(tmp_path):
    one = finished(tmp_path / "one", 1, *STALE)
    two = finished(tmp_path / "two", 2, *STALE)
    assert_same_run(two, one)
    lines = [line for line in read_metrics(two / "metrics.jsonl") if line["step"]]
    assert lines[-1]["policy/off_policy_steps"] == 1.0
    assert max(line["policy/logprob_gap_max"] for line in lines) < 1e-4


def test_overlapping_rollouts_of_killed_and_resumed_processes_equal_those_of_one(tmp_path):
    one = finished(tmp_path / "one", 1, *AHEAD)
    workdir = tmp_path / "run"
    command = launch.train_command(workdir, *AHEAD)
    with launch.started(command, 2, devices=4, folder=tmp_path / "logs") as running:
        wait_for_step(RunFolder(workdir), 3)
        running[1].kill()
        assert running[0].wait(PATIENCE_S) != 0
    assert_same_run(finished(workdir, 4, *AHEAD), one)
    ages = [line.get("policy/off_policy_steps_max") for line in read_metrics(one / "metrics.jsonl")]
    assert ages[-1] == 3.0


@pytest.mark.parametrize(("victim", "count"), [(1, 1), (0, 4)])
def test_a_killed_process_ends_the_others_and_any_number_resumes(
    tmp_path, reference, victim, count
):
    workdir = tmp_path / "run"
    command = launch.train_command(workdir, *OVERRIDES)
    with launch.started(command, 2, devices=4, folder=tmp_path / "logs") as running:
        wait_for_step(RunFolder(workdir), 3)
        running[victim].kill()
        other = running[1 - victim]
        assert other.wait(PATIENCE_S) != 0
    before = RunFolder(workdir).trajectory_steps()
    assert before and before[-1] < STEPS
    assert_same_run(finished(workdir, count, *OVERRIDES), reference)


def test_a_request_to_one_process_stops_all_after_a_checkpoint(tmp_path, reference):
    workdir = tmp_path / "run"
    command = launch.train_command(workdir, *OVERRIDES)
    with launch.started(command, 2, devices=4, folder=tmp_path / "logs") as running:
        wait_for_step(RunFolder(workdir), 2)
        running[1].send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE_S) for process in running] == [128 + signal.SIGTERM] * 2
    with Checkpoints(workdir / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        assert checkpoints.latest_step() == read_metrics(workdir / "metrics.jsonl")[-1]["step"]
    assert_same_run(finished(workdir, 2, *OVERRIDES), reference)


def test_processes_with_different_configs_write_nothing(tmp_path):
    workdir = tmp_path / "run"
    rate = {1: ["--config.optimizer.learning_rate=0.125"]}
    statuses, outputs = launch.train(workdir, 2, by_process=rate)
    assert statuses == [1, 1]
    for output in outputs:
        assert "differ in config.optimizer.learning_rate: " in output
        assert "0.125" in output and "0.003" in output
    assert not workdir.exists()


def test_processes_without_a_shared_folder_are_refused(tmp_path):
    elsewhere = {1: [f"--workdir={tmp_path / 'other'}"]}
    statuses, outputs = launch.train(tmp_path / "run", 2, by_process=elsewhere)
    assert statuses == [1, 1]
    assert all("a file system that all processes share" in output for output in outputs)
    assert not (tmp_path / "run").exists() and not (tmp_path / "other").exists()


def test_rows_that_the_processes_cannot_divide_are_refused(tmp_path):
    statuses, outputs = launch.train(tmp_path / "run", 4, "--config.sampler.rows=6")
    assert statuses == [1] * 4
    assert "config.sampler.rows=6 cannot be divided over 4 processes" in outputs[0]


def test_every_job_gives_the_weights_of_one_process(tmp_path):
    def run(count):
        folder = tmp_path / str(count)
        command = lambda flags, i: [
            *(sys.executable, "-m", "tests.processes.every_job", str(folder)),
            *(flags if count > 1 else ()),
        ]
        logs = tmp_path / f"logs_{count}"
        statuses, outputs = launch.finish(command, count, devices=2, folder=logs)
        assert statuses == [0] * count, outputs[0][-3000:]
        return folder

    one, two = run(1), run(2)
    names = sorted(path.name for path in one.iterdir())
    assert names == ["agentevol", "dpo", "lora", "mixture", "ppo", "reinforce", "sft"]
    for name in names:
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-4),
            *(newest_params(folder / name) for folder in (two, one)),
        )
