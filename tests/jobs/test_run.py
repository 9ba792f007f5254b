import errno
import io
import math
import os
import types

import jax.numpy as jnp
import pytest

from agentgym_jax.jobs.run import LoopState, Run, device_name, open_folder
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.telemetry.console import RunConsole


@pytest.fixture
def run():
    """Returns a run whose console writes to memory; unused parts of the run are None."""
    absent = dict.fromkeys(
        ("folder", "writer", "loggers", "checkpoints", "checkpoint_settings", "records")
    )
    console = RunConsole("grpo", {}, 4, stream=io.StringIO())
    return Run(
        **absent, console=console, total_steps=4, seed=0, should_stop=None, compilations=None
    )


def written(run):
    return run.console._console.file.getvalue()


def test_a_warning_is_written_once_if_log_and_console_share_a_stream(run, caplog):
    run.warn(3, ["gradient norm 40 times the median"])
    assert written(run) == "note: step 3: gradient norm 40 times the median\n"
    assert not caplog.records


def test_only_the_first_phase_of_a_kind_is_announced_as_compiling(run):
    run.folder = types.SimpleNamespace(begin=lambda: None)
    run.begin("rollout, horizon 5")
    run.begin("rollout, horizon 10")
    run.begin("update", 2)
    assert written(run).splitlines() == [
        "  rollout, horizon 5  compiling first",
        "  rollout, horizon 10",
        "  update  compiling first",
    ]


def test_step_zero_is_never_saved(run, tmp_path):
    with Checkpoints(tmp_path / "checkpoints", max_to_keep=1) as checkpoints:
        run.checkpoints = checkpoints
        run.save(LoopState(0, None))
        assert checkpoints.steps() == []


def test_a_checkpoint_keeps_metrics_that_are_no_numbers(run, tmp_path):
    def ignore(*_):
        pass

    run.folder = types.SimpleNamespace(begin=ignore, push=ignore, remove_trajectories_after=ignore)
    run.writer = types.SimpleNamespace(sync=ignore, truncate_after=ignore)
    state = TrainState(jnp.int32(1), {"w": jnp.zeros(2)}, {"m": jnp.zeros(2)})
    metrics = {"policy/loss": 2.0, "critic/loss": math.nan, "policy/grad_norm": math.inf}
    with Checkpoints(tmp_path / "checkpoints", max_to_keep=1) as run.checkpoints:
        run.save(LoopState(1, state, metrics))
        run.checkpoints.wait()
        found = run.restore(state).unlogged
    assert {k: str(v) for k, v in found.items()} == {
        "policy/loss": "2.0",
        "critic/loss": "nan",
        "policy/grad_norm": "nan",
    }


@pytest.mark.parametrize(
    ("number", "file", "message"),
    [
        (
            errno.ENOSPC,
            "run/tokenizer.json",
            "cannot write .*run/tokenizer.json: No space .*: free",
        ),
        (errno.ENOSPC, "elsewhere", "cannot write .*elsewhere: No space left on device.*: free"),
        (errno.ENOSPC, "", "cannot write .*run: No space left on device. The disk .* full: free"),
        (errno.EACCES, "run/metrics.jsonl", "metrics.jsonl: Permission denied. No permission to"),
        (errno.ENOENT, "run/checkpoints", "run/checkpoints: No such file or directory. Check the"),
    ],
)
def test_an_error_of_the_run_folder_anywhere_in_a_job_is_one_line(tmp_path, number, file, message):
    path = (str(tmp_path / file),) if file else ()
    with pytest.raises(RunFolderError, match=message):
        with open_folder({"seed": 0}, str(tmp_path / "run"), ()):
            raise OSError(number, os.strerror(number), *path)
    assert not (tmp_path / "run").exists()  # the start was undone


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EACCES])
def test_other_errors_of_the_operating_system_are_not_about_the_run_folder(tmp_path, number):
    with pytest.raises(OSError) as caught, open_folder({"seed": 0}, str(tmp_path / "run"), ()):
        raise OSError(number, os.strerror(number), str(tmp_path / "data.json"))
    assert caught.value.errno == number


def test_a_device_name_does_not_repeat_the_platform():
    named = [("cpu", "cpu"), ("tpu", "TPU v5e"), ("gpu", "NVIDIA H100")]
    devices = [types.SimpleNamespace(platform=p, device_kind=k) for p, k in named]
    assert [device_name(d) for d in devices] == ["cpu", "TPU v5e", "gpu NVIDIA H100"]
