"""A sweep of real training processes that is killed twice equals the same runs on their own."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow
SWEEP = "tests/sweeps/tiny_sweep.py"
# Metrics that are functions of the config; times and memory are not.
KEPT = ("step", "sft/loss", "policy/grad_norm", "policy/entropy", "batch/tokens")


def command(*arguments, module="sweep"):
    return [sys.executable, "-m", f"agentgym_jax.{module}", *map(str, arguments)]


def environment():
    """Returns an environment with one CPU device, as a user has it."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def call(*arguments, module="sweep"):
    done = run_python("-m", f"agentgym_jax.{module}", *arguments, XLA_FLAGS=None)
    return done.returncode, done.stdout + done.stderr


def stop_after(run, step, number, workdir):
    """Starts the sweep, and signals it when a run has a checkpoint; returns the exit status."""
    process = subprocess.Popen(
        command(f"--config={SWEEP}", f"--workdir={workdir}"),
        cwd=ROOT,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    while not (workdir / "runs" / run / f"checkpoints/{step}/digests.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    if number == signal.SIGKILL:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    return process.wait()


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{name: json.loads(line)[name] for name in KEPT} for line in lines]


def test_a_killed_and_resumed_sweep_equals_single_runs(tmp_path):
    workdir = tmp_path / "sweep"
    assert stop_after("batch=small_seed=0", 2, signal.SIGKILL, workdir) == -signal.SIGKILL
    assert stop_after("batch=large_seed=0", 2, signal.SIGTERM, workdir) == 143
    status, output = call(f"--config={SWEEP}", f"--workdir={workdir}")
    assert status == 0 and "4 of 4 finished" in output, output
    status, output = call(f"--config={SWEEP}", f"--workdir={workdir}")
    assert status == 0 and output.splitlines()[0].endswith("4 finished before")
    for batch, flags in {"small": "rows=2", "large": "rows=4"}.items():
        alone = tmp_path / batch
        extra = ["--config.sft.micro_rows=2"] if batch == "large" else []
        base = f"--config=tests/sweeps/tiny.py:{flags}"
        status, output = call(base, f"--workdir={alone}", *extra, module="train")
        assert status == 0, output
        assert metrics(workdir / f"runs/batch={batch}_seed=0") == metrics(alone)
    status, output = call("report", workdir)
    assert status == 0 and output.count("wrote ") == 3
    with (workdir / "runs.csv").open() as file:
        losses = {row["run"]: float(row["sft/loss"]) for row in csv.DictReader(file)}
    assert losses["batch=large_seed=0"] == metrics(tmp_path / "large")[-1]["sft/loss"]
    assert "| batch=large | batch=small | 2 |" in (workdir / "report.md").read_text()


def test_a_failing_run_is_named_at_the_end_and_the_others_are_trained(tmp_path):
    status, output = call(f"--config={SWEEP}:fail", f"--workdir={tmp_path / 'sweep'}")
    assert status == 1
    assert "4 of 6 finished, 2 failed" in output
    summary = output.partition("2 runs failed; the same command tries them again:\n")[2]
    assert "logs/batch=broken_seed=0.log\n" in summary and "no_such_file.json" in summary
