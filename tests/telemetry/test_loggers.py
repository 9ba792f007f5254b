"""Loggers: each gets every step once, also after restarts, and never stops or slows the run."""

import collections
import importlib.util
import logging
import pathlib
import sys
import threading
import time

import pytest

from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.loggers import logger_table
from agentgym_jax.telemetry.loggers.channel import Channel
from agentgym_jax.telemetry.metrics_file import MetricWriter
from tests.telemetry import logger_fakes as fakes
from tests.waiting import PATIENCE_S, until

NAMES = tuple(logger_table.LOGGERS)
SUCCESS = {"rollout/success": 1.0, "rollout/success/a b": 1.0}
CONFIG = {"seed": 0, "client": {"token": "hunter2"}, "many": {f"k{i}": i for i in range(150)}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    fakes.install(monkeypatch)
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "TRACKIO_DIR"):
        monkeypatch.delenv(name, raising=False)
    # The logger changes this variable; monkeypatch restores only variables that it has set.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    return RunFolder(tmp_path / "first")


def train(folder, steps, names=NAMES, value=lambda step: step / 10):
    """Writes and logs steps as a run does, replacing existing lines of the same steps."""
    folder.path.mkdir(exist_ok=True)
    with (
        MetricWriter(folder.metrics_path) as writer,
        logger_table.open_loggers(names, folder, CONFIG) as loggers,
    ):
        writer.truncate_after(min(steps) - 1)
        for step in steps:
            values = writer.write(step, {"policy/loss": value(step)} | SUCCESS)
            loggers.log(step, values)


def sent(kind):
    """Returns the steps at which each run logged `policy/loss`."""
    return {
        run: [step for step, name, _ in rows if name == "policy/loss"]
        for (of, run), rows in fakes.SENT.items()
        if of == kind
    }


@pytest.mark.parametrize("kind", NAMES)
def test_every_step_reaches_every_logger_in_order(folder, kind):
    train(folder, range(1, 6))
    assert list(sent(kind).values()) == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize("kind", NAMES)
def test_a_resumed_run_continues_without_duplicate_steps(folder, kind):
    train(folder, range(1, 6))
    # the first start was killed after step 5, with step 3 as its newest checkpoint
    train(folder, range(4, 9))
    # both starts are logged as one run
    assert list(sent(kind).values()) == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_a_logger_that_is_added_later_gets_the_earlier_steps(folder):
    train(folder, range(1, 4), names=())
    train(folder, range(4, 6), names=("wandb",))
    assert list(sent("wandb").values()) == [[1, 2, 3, 4, 5]]
    rows = next(iter(fakes.SENT.values()))
    assert {name for _, name, _ in rows} == {"policy/loss", *SUCCESS}


def test_a_value_that_is_not_finite_is_left_out(folder):
    train(folder, range(1, 4), value=lambda step: float("nan") if step == 2 else 1.0)
    assert list(sent("tensorboard").values()) == [[1, 3]]


def test_loggers_write_offline_into_the_run_folder_by_default(folder, monkeypatch):
    train(folder, [1])
    (start,) = sys.modules["wandb"].starts
    assert start["mode"] == "offline" and start["dir"] == str(folder.loggers / "wandb")
    assert start["settings"]["x_disable_meta"]  # metadata would contain the command line
    assert sys.modules["mlflow.tracking"].MlflowClient.uris == [
        (folder.loggers / "mlflow").as_uri()
    ]
    assert list(sent("tensorboard")) == [str(folder.loggers / "tensorboard")]
    monkeypatch.setenv("WANDB_MODE", "online")
    train(RunFolder(folder.path.with_name("second")), [1], names=("wandb",))
    assert sys.modules["wandb"].starts[-1]["mode"] == "online"


def test_no_logger_receives_a_secret(folder):
    train(folder, [1])
    (start,) = sys.modules["wandb"].starts
    params = dict(sys.modules["mlflow.tracking"].MlflowClient.params)
    assert start["config"]["client"]["token"] == "<hidden>"
    assert params["client.token"] == '"<hidden>"'
    assert len(params) == 152


class Broken:
    """A logger that fails at the third step."""

    def __init__(self):
        self.steps = []

    def log(self, step, values):
        if step == 3:
            raise ConnectionError("http://me:hunter2@host is gone")
        self.steps.append(step)

    def close(self):
        raise AssertionError("a logger that failed is left alone")


class Hanging:
    """A logger that never returns from its first step."""

    def __init__(self):
        self.end = threading.Event()

    def log(self, step, values):
        self.end.wait()
        raise TimeoutError  # otherwise the thread would write files during the next tests

    def close(self):
        pass


def channel(tmp_path, make):
    return Channel("it", make, tmp_path / "sent", tmp_path / "metrics.jsonl")


def test_a_failing_logger_warns_once_and_is_disabled(tmp_path):
    broken, caught = Broken(), collections.deque()
    handler = logging.Handler()
    handler.emit = lambda record: caught.append(record.getMessage())
    logging.getLogger("absl").addHandler(handler)
    (tmp_path / "metrics.jsonl").touch()
    it = channel(tmp_path, lambda: broken)
    for step in range(1, 50):
        it.log(step, {"policy/loss": 1.0})
    it.close(10.0)
    logging.getLogger("absl").removeHandler(handler)
    assert broken.steps == [1, 2]
    (line,) = caught
    assert "from step 3 on" in line and "ConnectionError" in line and "hunter2" not in line


def test_a_hanging_logger_only_causes_a_bounded_wait_at_the_end(tmp_path):
    hanging = Hanging()
    (tmp_path / "metrics.jsonl").touch()
    it = channel(tmp_path, lambda: hanging)
    started = time.perf_counter()
    for step in range(1, 3000):  # more than the queue can contain
        it.log(step, {"policy/loss": 1.0})
    it.close(0.2)
    assert time.perf_counter() - started < 120.0
    hanging.end.set()
    it._thread.join()


def test_steps_that_did_not_fit_into_the_queue_are_read_from_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("agentgym_jax.telemetry.loggers.channel._CAPACITY", 2)
    steps, gate = [], threading.Event()

    class Slow:
        def log(self, step, values):
            gate.wait()
            steps.append(step)

        def close(self):
            pass

    with MetricWriter(tmp_path / "metrics.jsonl") as writer:
        it = channel(tmp_path, Slow)
        for step in range(1, 21):
            it.log(step, writer.write(step, {"policy/loss": 1.0}))
        gate.set()
        until(lambda: len(steps) >= 2)
        it.log(21, writer.write(21, {"policy/loss": 1.0}))
        it.close(PATIENCE_S)
    assert steps == list(range(1, 22))


def test_a_logger_that_is_not_finished_in_time_is_named_and_closed_later(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("agentgym_jax.telemetry.loggers.channel._CAPACITY", 2)
    gate, closed = threading.Event(), threading.Event()
    steps = []

    class Late:
        def log(self, step, values):
            gate.wait()
            steps.append((step, values["policy/loss"]))

        def close(self):
            closed.set()

    (tmp_path / "metrics.jsonl").touch()
    it = channel(tmp_path, Late)
    values = {"policy/loss": 1.0}
    it.log(1, values)
    until(it._queue.empty)
    it.log(2, values)
    it.log(3, values)  # the queue has no space left, not even for the end marker
    values["policy/loss"] = 2.0  # a later change must not affect the step that was sent
    with caplog.at_level(logging.WARNING):
        it.close(0.05)
    assert "logger it is not done after 0.05 s and is left behind" in caplog.text
    gate.set()
    assert closed.wait(PATIENCE_S)
    assert steps == [(1, 1.0), (2, 1.0), (3, 1.0)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tensorbord", "'tensorbord' is none of tensorboard, wandb, mlflow, trackio"),
        ("wandb+", "'' is none of"),
        ("wandb+wandb", "names a logger twice"),
        ("none+wandb", "'none' is none of"),
    ],
)
def test_an_invalid_list_of_loggers_is_refused(word, message, monkeypatch):
    fakes.install(monkeypatch)
    with pytest.raises(ValueError) as error:
        logger_table.parse(word)
    assert message in str(error.value)


def test_any_number_of_loggers_can_be_named(monkeypatch):
    fakes.install(monkeypatch)
    assert logger_table.parse("none") == ()
    assert logger_table.parse("tensorboard+wandb+mlflow+trackio") == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_error_for_a_missing_package_shows_the_install_command(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ValueError) as error:
        logger_table.parse(name)
    assert f'pip install -e ".[{name}]"' in str(error.value)


def test_every_logger_has_an_extra_with_its_package():
    text = (pathlib.Path(__file__).parents[2] / "setup.py").read_text()
    for name in NAMES:
        assert f'"{name}": ["' in text


@pytest.mark.parametrize("name", NAMES)
def test_the_real_package_accepts_our_records(name, tmp_path, monkeypatch):
    """Checks an installed package; to run this test: pip install -e '.[wandb]' and so on."""
    if importlib.util.find_spec(logger_table.LOGGERS[name][0]) is None:
        pytest.skip(f"{logger_table.LOGGERS[name][0]} is not installed")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    folder = RunFolder(tmp_path / "run")
    train(folder, range(1, 4), names=(name,))
    assert (folder.loggers / f"{name}.sent").read_text() == "3\n"
    train(folder, range(3, 6), names=(name,))
    assert (folder.loggers / f"{name}.sent").read_text() == "5\n"
    assert any(path.is_file() for path in tmp_path.rglob(f"*{name}*/**/*"))
