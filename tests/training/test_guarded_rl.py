"""A guard that stops online RL: the step it saw is logged and saved, and the process says why it ends."""

import contextlib
import types

import pytest

from agentgym_jax import train
from agentgym_jax.startup import USER_ERRORS
from agentgym_jax.training import rl
from agentgym_jax.training.guards import GuardStop, History


class FakeRun:
    """The parts of a run that the order of things touches; every call is recorded."""

    def __init__(self):
        self.total_steps = 4
        self.calls = []
        self.writer = types.SimpleNamespace(last_step=0)

    def save(self, step, state, unlogged, *, memory, guards, behaviour):
        self.calls.append(("saved", step, state, unlogged, History.from_json(guards), behaviour))

    def log_step(self, step, metrics):
        self.calls.append(("logged", step, metrics))

    def is_save_due(self, step):
        return False

    def should_stop(self):
        return False


@pytest.fixture
def run(monkeypatch):
    memory = types.SimpleNamespace(to_json=dict)
    seen = History(nonfinite_steps=3, seen=("nonfinite",))

    def learned(run, parts, collections, now, reference):
        stop = "guard nonfinite: no number" if now.step == 1 else None
        return rl._Standing(now.step + 1, "state", memory, {"a": 1.0}, "played", seen, stop)

    monkeypatch.setattr(rl, "Collections", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(rl, "_start", lambda *_: (rl._Standing(0, "first", memory), None))
    monkeypatch.setattr(rl, "_give_weights", lambda *_: None)
    monkeypatch.setattr(rl, "_learned", learned)
    run = FakeRun()
    evaluation = types.SimpleNamespace(is_due=lambda *_: False)
    settings = types.SimpleNamespace(rollout=types.SimpleNamespace(lag=0), evaluation=evaluation)
    with pytest.raises(GuardStop, match="stopped after step 2, which is saved: guard nonfinite"):
        rl.train(run, types.SimpleNamespace(settings=settings))
    return run


def test_the_step_is_logged_before_it_is_saved_and_nothing_comes_after(run):
    assert [call[:2] for call in run.calls] == [
        ("logged", 1),
        ("logged", 2),
        ("saved", 2),
    ]


def test_what_is_saved_is_whole(run):
    _, step, state, unlogged, history, behaviour = run.calls[-1]
    assert (step, state, unlogged, behaviour) == (2, "state", None, "played")
    assert history == History(nonfinite_steps=3, seen=("nonfinite",))


def test_the_process_ends_with_a_line_that_hides_secrets_and_a_status_that_is_not_zero(
    monkeypatch, capsys
):
    assert GuardStop in USER_ERRORS

    def stopped(config, workdir, plots):
        raise GuardStop("stopped after step 2: http://me:hunter2@host")

    monkeypatch.setattr(train, "run_job", stopped)
    monkeypatch.setattr(train, "prepare", lambda: None)
    monkeypatch.setattr(train, "plain", lambda config: config)
    monkeypatch.setattr(train, "_CONFIG", types.SimpleNamespace(value={}))
    monkeypatch.setattr(train, "_WORKDIR", types.SimpleNamespace(value="x"))
    monkeypatch.setattr(train, "_PLOTS", types.SimpleNamespace(value=True))
    assert train.main(["train"]) == 1
    shown = capsys.readouterr().err
    assert "stopped after step 2" in shown and "hunter2" not in shown and "Traceback" not in shown
