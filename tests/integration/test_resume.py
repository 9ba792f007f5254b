"""Resumed runs on the real BabyAI server.

A run of 2N steps equals, bit for bit, a run that is killed after N steps and resumed for N more.
"""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from agentgym_jax.config.sections import plain
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.runs.run_folder import RunFolder
from tests import fast_programs
from tests.integration import tiny

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 4
BOUNDARY = 2


def command(workdir, *overrides):
    config = pathlib.Path(__file__).with_name("tiny.py")
    flags = [f"--config={config}", f"--workdir={workdir}"]
    return [sys.executable, "-m", "agentgym_jax.train", "--noplots_at_end", *flags, *overrides]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), **fast_programs.variables()}


def train(workdir, *overrides):
    done = subprocess.run(
        command(workdir, *overrides),
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def params(workdir):
    source = resolve(str(workdir))
    with Checkpoints(workdir / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        assert checkpoints.latest_step() == STEPS
        return checkpoints.restore_params(STEPS, Policy(source.config).abstract_params())


def controllers(workdir):
    """Returns the state of the controllers in the last checkpoint."""
    with Checkpoints(workdir / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        return checkpoints.restore_extra(STEPS)["controllers"]


def episodes(workdir, step):
    records = RunFolder(workdir).read_trajectories(step)
    for record in records:
        del record["seconds"]
    return records


def assert_same_run(workdir, reference):
    for a, b in zip(
        jax.tree.leaves(params(workdir)), jax.tree.leaves(params(reference)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    for step in range(1, STEPS + 1):
        assert episodes(workdir, step) == episodes(reference, step)
    lines = {}
    for folder in (workdir, reference):
        text = (folder / "metrics.jsonl").read_text().splitlines()
        lines[folder] = [x for x in map(json.loads, text) if x["step"]]
    assert [x["step"] for x in lines[workdir]] == [x["step"] for x in lines[reference]]
    for key in (
        "policy/loss",
        "policy/kl_k3",
        "policy/grad_norm",
        "horizon/turns",
        "horizon/average",
    ):
        assert [x.get(key) for x in lines[workdir]] == [x.get(key) for x in lines[reference]]
    for key in ("horizon/turns", "horizon/turns/OpenDoorLoc", "horizon/turns/PickupAbove"):
        # the curriculum may leave a group out of a step
        found = [
            (x[key], turns)
            for x, turns in zip(lines[workdir], (1, 1, 2, 2), strict=True)
            if key in x
        ]
        assert found and all(x == turns for x, turns in found)
    # the horizons of the adaptive groups; PickupAbove is one of these groups
    horizons = controllers(workdir)["horizons"]
    assert len(horizons) == 3
    averages = [row["average"] for row in horizons if row["average"] is not None]
    assert averages and lines[workdir][-1]["horizon/average"] == pytest.approx(np.mean(averages))
    assert controllers(workdir) == controllers(reference)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(workdir)
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["policy/update_norm"] > 0 for line in lines)
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "every"),
    [(1, 1), (BOUNDARY, 1), (1, 100)],
    ids=["after the first step", "at a stage boundary", "before the first checkpoint"],
)
def test_killing_and_resuming_does_not_change_a_run(tmp_path, uninterrupted, step, every):
    workdir = tmp_path / "run"
    overrides = (f"--config.checkpoint.every={every}",)
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            command(workdir, *overrides), env=environment(), cwd=ROOT, stdout=log, stderr=log
        )
        deadline = time.monotonic() + 200
        metrics = workdir / "metrics.jsonl"
        while not (metrics.exists() and len(metrics.read_text().splitlines()) >= step):
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    train(workdir, *overrides)
    assert_same_run(workdir, uninterrupted)


def stop_after(step, workdir, *overrides, number=signal.SIGTERM):
    """Starts a run; sends a stop signal when the line of a step is written."""
    process = subprocess.Popen(
        command(workdir, *overrides),
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = workdir / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= step):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    _, stderr = process.communicate()
    assert process.returncode == 128 + number, stderr[-3000:]
    resume = stderr.strip().splitlines()[-1].split("; to resume: ")[1]
    assert shlex.split(resume) == ["python", *command(workdir, *overrides)[1:]]


@pytest.mark.slow
def test_a_run_stopped_by_a_signal_resumes_to_the_same_result(tmp_path, uninterrupted):
    workdir = tmp_path / "run"
    overrides = ("--config.checkpoint.every=100", "--config.evaluation.at_start=True")
    # Step 0 is evaluated but nothing is learned yet, so the stop writes no checkpoint.
    stop_after(1, workdir, *overrides, number=signal.SIGINT)
    assert not list((workdir / "checkpoints").iterdir())
    stop_after(1 + BOUNDARY, workdir, *overrides)
    train(workdir, *overrides)
    assert_same_run(workdir, uninterrupted)


# The next rollout runs during the update. Several sampling rounds are needed until enough groups
# have different returns; in this config, only a length penalty makes returns differ.
AHEAD = (
    "--config.rollout.max_off_policy_steps=1",
    "--config.algorithm.zero_variance=resample",
    "--config.rollout.max_rounds=3",
    "--config.rollout.overlong={'kind': 'tokens', 'limit': 128, 'margin': 127, 'penalty': 1.0}",
    "--config.sampling.max_turn_tokens=64",
    "--config.env_server.transport=inprocess",
)


@pytest.mark.slow
def test_a_stop_during_a_background_rollout_does_not_change_the_result(tmp_path):
    reference, workdir = tmp_path / "reference", tmp_path / "run"
    train(reference, *AHEAD)
    lines = [json.loads(x) for x in (reference / "metrics.jsonl").read_text().splitlines()]
    assert [x["policy/off_policy_steps"] for x in lines] == [0, 1, 1, 1]
    for step in range(1, STEPS + 1):
        records = episodes(reference, step)
        versions = {v for r in records for v in r["policy_versions"] if v >= 0}
        assert versions == {max(0, step - 2)}  # the rollout used the weights before the last update
        assert sum(not r["discarded"] for r in records) == 16
        assert len(records) == 16 * lines[step - 1]["rollout/rounds"]
    assert max(x["rollout/rounds"] for x in lines) > 1
    assert max(x["policy/stale_gap_mean"] for x in lines[1:]) > lines[0]["policy/logprob_gap_mean"]
    stop_after(1, workdir, *AHEAD, "--config.checkpoint.every=100")
    train(workdir, *AHEAD, "--config.checkpoint.every=100")
    assert_same_run(workdir, reference)


@pytest.mark.slow
def test_another_config_in_the_same_run_folder_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.start(plain(tiny.get_config()), devices=[], adjustable=())
    folder.metrics_path.write_text('{"step": 1}\n')
    folder.close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = subprocess.run(
        command(tmp_path, "--config.optimizer.learning_rate=0.1"),
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "optimizer.learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}.items() <= (
        before.items()
    )


@pytest.mark.slow
def test_a_run_with_environments_in_process_equals_one_with_servers(tmp_path, uninterrupted):
    workdir = tmp_path / "run"
    train(workdir, "--config.env_server.transport=inprocess")
    assert_same_run(workdir, uninterrupted)
