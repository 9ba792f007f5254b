"""Full disks: the run ends with a message, saved files stay intact, and the run can resume later."""

import contextlib
import pathlib
import resource
import subprocess

import pytest

from agentgym_jax.jobs.run import Run
from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.telemetry.metrics_file import read_metrics
from tests.faults import runs

# After one failed write, the array writer leaves other writes unfinished.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MEGABYTE = 1 << 20


@contextlib.contextmanager
def small_disk(folder, size):
    """Mounts a small disk at the folder; skips the test if mounting is not permitted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def fill(folder):
    """Fills the disk of a folder up to some kilobytes."""
    ballast = pathlib.Path(folder) / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    with open(ballast, "r+b") as file:
        file.truncate(max(0, ballast.stat().st_size - 16384))
    yield
    ballast.unlink()


@contextlib.contextmanager
def small_files():
    """Limits the size of every file to some kilobytes.

    The limit replaces a full disk if mounting is not permitted.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fails_after_a_step(monkeypatch, url, workdir, trouble):
    """Trains with a disk that becomes full after the line of step 1; returns the error message."""
    log = Run.log_step
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:

        def log_and_fill(self, step, metrics):
            log(self, step, metrics)
            self.checkpoints.wait()
            if step == 1:
                stack.enter_context(trouble)

        patch.setattr(Run, "log_step", log_and_fill)
        with pytest.raises((RunFolderError, CheckpointError)) as caught:
            runs.train(runs.config(url), workdir)
    return str(caught.value)


def assert_good_until(workdir, step):
    assert [line["step"] for line in read_metrics(workdir / "metrics.jsonl")] == [step]
    with Checkpoints(workdir / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        for saved in checkpoints.steps():
            assert checkpoints.restore_extra(saved)["step"] == saved <= step


@pytest.mark.slow
def test_a_file_size_limit_ends_the_run_with_a_message(url, tmp_path, monkeypatch):
    message = fails_after_a_step(monkeypatch, url, tmp_path / "run", small_files())
    assert "File too large" in message and "ulimit" in message
    assert_good_until(tmp_path / "run", 1)


@pytest.mark.slow
def test_a_run_ended_by_a_full_disk_can_resume(url, undisturbed, tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", 4 * MEGABYTE) as disk:
        message = fails_after_a_step(monkeypatch, url, disk / "run", fill(disk))
        assert "No space left" in message and "free space" in message
        assert_good_until(disk / "run", 1)
        runs.train(runs.config(url), disk / "run")
        runs.assert_same(disk / "run", undisturbed)
