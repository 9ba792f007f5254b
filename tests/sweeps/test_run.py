"""The runner of a sweep, with processes that imitate training: stops, kills, failures, cores."""

import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.sweeps.expand import expand
from agentgym_jax.sweeps.folder import SweepFolder, available_memory_gib, make_record
from agentgym_jax.sweeps.spec import Sweep, listed
from agentgym_jax.sweeps.sweep_runs import SweepRunner, check_parallel, failure_lines
from agentgym_jax.training_api.saved import SavedModels

STAND_IN = pathlib.Path(__file__).with_name("stand_in.py")
STEPS = 4


def make_sweep(labels=("a", "b"), seeds=(0, 1)):
    axis = listed("kind", {text: {} for text in labels})
    return Sweep(config="none.py", axes=(axis,), seeds=seeds, metric="sft/loss", goal="min")


def record_of(sweep):
    runs = expand(sweep)
    return make_record(sweep, runs, {run.name: STEPS for run in runs})


def stand_in(delay=0.0):
    return lambda run, path, python: [python, str(STAND_IN), path, str(STEPS), str(delay)]


def train(folder, sweep, *, slots=([],), stop=None, delay=0.0):
    """Returns the failed runs and the lines of the progress."""
    record, lines = record_of(sweep), []
    with folder.opened(record):
        stop = stop or StopFlag()
        failed = SweepRunner(folder, record, slots, stop, lines.append, stand_in(delay)).run()
    return failed, lines


def computed(folder, run):
    return [int(x) for x in (folder.run_path(run) / "computed.txt").read_text().split()]


def test_all_runs_are_trained_once_and_a_second_call_trains_none(tmp_path):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep()
    failed, lines = train(folder, sweep)
    assert not failed and lines[-1].endswith("(4 of 4 finished)")
    assert len(lines) == 1 + 2 * 4 and "min left" in lines[3]
    assert train(folder, sweep) == ([], [f"4 runs in {folder.path}, 4 finished before"])
    for run in expand(sweep):
        assert computed(folder, run) == [1, 2, 3, 4]


def test_a_stopped_sweep_saves_and_continues(tmp_path):
    folder, sweep, stop = SweepFolder(str(tmp_path / "s")), make_sweep(), StopFlag()
    watched = folder.run_path(expand(sweep)[0]) / "computed.txt"

    def request():
        while not watched.exists():
            time.sleep(0.01)
        stop._is_set = True

    thread = threading.Thread(target=request)
    thread.start()
    failed, lines = train(folder, sweep, stop=stop, delay=0.4)
    thread.join()
    assert not failed and "stopping kind=a_seed=0" in lines[-1]
    assert not folder.run_path(expand(sweep)[1]).exists()
    assert not train(folder, sweep)[0]
    assert [computed(folder, run) for run in expand(sweep)] == [[1, 2, 3, 4]] * 4


def test_a_failed_run_does_not_stop_the_others_and_is_tried_again(tmp_path):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep(("broken", "b"), seeds=(0,))
    for calls in (1, 2):
        failed, lines = train(folder, sweep)
        assert [run.name for run in failed] == ["kind=broken_seed=0"]
        summary = failure_lines(folder, failed)
        assert summary[1] == f"kind=broken_seed=0: {folder.log_path(failed[0])}"
        assert summary[-1] == "    the reason of the failure"
        assert folder.log_path(failed[0]).read_text().count("first line") == calls
    folder.log_path(failed[0]).unlink()  # by hand
    assert failure_lines(folder, failed)[1:] == summary[1:2]
    assert "1 of 2 finished, 1 failed" in lines[-1]
    assert computed(folder, expand(sweep)[1]) == [1, 2, 3, 4]


def test_a_run_with_a_damaged_file_does_not_stop_the_others(tmp_path):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep(seeds=(0,))
    runs = expand(sweep)
    folder.run_path(runs[0]).mkdir(parents=True)
    folder.record_path.write_text(json.dumps(dataclasses.asdict(record_of(sweep))))
    (folder.run_path(runs[0]) / "metrics.jsonl").write_text("\0\0\n")
    _, lines = train(folder, sweep)
    assert "resume after step 0: kind=a_seed=0" in lines[1]
    assert computed(folder, runs[1]) == [1, 2, 3, 4]


def test_a_start_that_was_killed_or_had_no_space_leaves_a_folder_that_can_be_used(
    tmp_path, monkeypatch
):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep(seeds=(0,))
    with monkeypatch.context() as patch, pytest.raises(RunFolderError, match="No space left"):
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        train(folder, sweep)
    (folder.path / ".sweep.json.1.tmp").write_text("{")  # of a process that was killed
    assert not train(folder, sweep)[0]


@pytest.mark.parametrize("below", ["", "runs"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path, below):
    folder = SweepFolder(str(tmp_path / "s"))
    if below:
        with folder.opened(record_of(make_sweep())):
            folder.runs.rmdir()
    (folder.path / below).write_text("")
    with pytest.raises(RunFolderError, match="A file exists where a folder is needed"):
        train(folder, make_sweep())


def test_a_file_system_without_locks_has_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    with caplog.at_level("WARNING"):
        assert not train(SweepFolder(str(tmp_path / "s")), make_sweep(seeds=(0,)))[0]
        models = SavedModels(tmp_path / "models", {}, "base")
        models.start()
        with RunFolder(tmp_path / "run") as run:
            run.start({}, devices=[], adjustable=())
    assert "has no locks (No locks available)" in caplog.text


def failing(number):
    """Returns a function that raises an error of the operating system."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


def test_parallel_runs_have_disjoint_cores(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep()
    before = os.sched_getaffinity(0)
    slots = check_parallel(2, None)
    assert not set(slots[0]) & set(slots[1])
    assert not train(folder, sweep, slots=slots, delay=0.05)[0]
    assert os.sched_getaffinity(0) == before
    used = [json.loads((folder.run_path(r) / "cores.json").read_text()) for r in expand(sweep)]
    assert {tuple(cores) for cores in used} == set(map(tuple, slots))


def test_a_run_that_another_process_trains_is_awaited_and_not_run_twice(tmp_path):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep(seeds=(0,))
    first = expand(sweep)[0]
    with folder.opened(record_of(sweep)):
        pass
    other = subprocess.Popen(stand_in(0.3)(first, str(folder.run_path(first)), sys.executable))
    while not (folder.run_path(first) / "computed.txt").exists():
        time.sleep(0.01)
    failed, lines = train(folder, sweep)
    assert other.wait() == 0 and not failed
    assert "waiting for another process that trains kind=a_seed=0" in lines[1]
    assert "finished elsewhere kind=a_seed=0" in "\n".join(lines)
    assert computed(folder, first) == [1, 2, 3, 4]


# Program that runs a sweep of imitated trainings, for a test that kills it.
PROGRAM = """
import sys
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.sweeps.folder import SweepFolder
from tests.sweeps import test_run
with StopFlag().installed() as stop:
    test_run.train(SweepFolder(sys.argv[1]), test_run.make_sweep(), stop=stop, delay=0.2)
    sys.exit(stop.exit_status if stop() else 0)
"""


@pytest.mark.slow
def test_a_sweep_whose_processes_are_killed_repeats_only_what_was_not_saved(tmp_path):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep()
    runs = expand(sweep)
    for number, run in ((signal.SIGKILL, runs[0]), (signal.SIGTERM, runs[1])):
        command = [sys.executable, "-c", PROGRAM, str(folder.path)]
        process = subprocess.Popen(command, start_new_session=True)
        while not (folder.run_path(run) / "checkpoints/2").exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, number)
        assert process.wait() == (-9 if number == signal.SIGKILL else 143)
    assert not train(folder, sweep)[0]
    for run in runs:
        steps = computed(folder, run)
        assert sorted(set(steps)) == [1, 2, 3, 4] and len(steps) <= 5


def test_a_folder_with_other_contents_is_refused_and_left_alone(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files and no sweep.json"):
        train(SweepFolder(str(tmp_path)), make_sweep())
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_a_folder_keeps_its_sweep_but_accepts_more_runs(tmp_path):
    folder = SweepFolder(str(tmp_path / "s"))
    train(folder, make_sweep(seeds=(0,)))
    before = folder.record_path.read_text()
    with pytest.raises(ConfigError, match="its run kind=b_seed=0 is not in this one"):
        train(folder, make_sweep(("a",)))
    changed = make_sweep()
    object.__setattr__(changed, "config", "other.py")
    with pytest.raises(ConfigError, match="run kind=a_seed=0 differs in --config=none.py, --conf"):
        train(folder, changed)
    assert folder.record_path.read_text() == before
    failed, lines = train(folder, make_sweep(seeds=(0, 5)))
    assert not failed and lines[0] == f"4 runs in {folder.path}, 2 finished before"


def test_a_sweep_that_has_trained_nothing_gives_its_folder_to_another(tmp_path):
    folder = SweepFolder(str(tmp_path / "s"))
    with folder.opened(record_of(make_sweep())):
        pass
    assert not train(folder, make_sweep(("a",)))[0]


def test_two_processes_cannot_run_the_same_sweep(tmp_path):
    folder, record = SweepFolder(str(tmp_path / "s")), record_of(make_sweep())
    with folder.opened(record), pytest.raises(RunFolderError, match="another process runs"):
        with SweepFolder(str(tmp_path / "s")).opened(record):
            pass


def test_a_run_is_finished_only_with_metrics_and_checkpoint_of_its_last_step(tmp_path):
    folder, sweep = SweepFolder(str(tmp_path / "s")), make_sweep(("a",), seeds=(0,))
    (run,) = expand(sweep)
    assert not folder.is_finished(run, STEPS) and folder.steps_done(run) is None
    train(folder, sweep)
    assert folder.is_finished(run, STEPS) and not folder.is_finished(run, STEPS + 1)
    (folder.run_path(run) / f"checkpoints/{STEPS}/digests.json").unlink()
    assert not folder.is_finished(run, STEPS)


def test_more_runs_than_cores_or_memory_are_refused():
    with pytest.raises(ConfigError, match="this process may use"):
        check_parallel(10_000, None)
    with pytest.raises(ConfigError, match="memory_gib of the sweep"):
        check_parallel(1, 1e6)


def test_available_memory_respects_the_control_group(tmp_path):
    assert available_memory_gib(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 8388608 kB\n")
    assert available_memory_gib(tmp_path) == 8.0
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text(f"{2**30}\n")
    assert available_memory_gib(tmp_path) == 8.0
    (group / "memory.max").write_text(f"{4 * 2**30}\n")
    assert available_memory_gib(tmp_path) == 3.0


def test_a_bucket_is_refused():
    with pytest.raises(RunFolderError, match="mount the bucket"):
        SweepFolder("gs://bucket/sweep")
