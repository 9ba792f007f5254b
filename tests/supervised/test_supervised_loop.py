"""Steps and evaluations of a supervised job that is stopped and killed at every possible point."""

import json
import types

import jax
import jax.numpy as jnp
import optax
import pytest

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.config.settings import EvaluationSettings
from agentgym_jax.jobs import after_step
from agentgym_jax.jobs.job import Parts
from agentgym_jax.jobs.run import LoopState, StopRequested
from agentgym_jax.supervised import supervised_loop
from agentgym_jax.telemetry.guards import GuardSettings, GuardStop, History
from agentgym_jax.telemetry.metrics_file import MetricWriter

EVERY = EvaluationSettings(every=2, at_start=True, max_turns=1, samples=1, greedy=False)


# A model with a single weight, which starts at 1.
MODEL = types.SimpleNamespace(
    trained=types.SimpleNamespace(abstract_params=lambda: jax.ShapeDtypeStruct((), jnp.float32)),
    layout=None,
    initial_params=lambda: jnp.ones(()),
)
OPTIMIZER = optax.sgd(0.1)


class Killed(Exception):
    """An error that the program does not catch."""


class FakeRun:
    """The parts of a Run that `fit` uses; checkpoints are a list in memory, the log is a file."""

    def __init__(self, folder, checkpoints, *, total_steps=4, every=3):
        self.total_steps, self._every = total_steps, every
        self.seed = 0
        self.checkpoints = checkpoints
        self.writer = MetricWriter(folder / "metrics.jsonl")
        # next results of should_stop.agreed(); False after the last one
        self.stops = iter(())
        self.should_stop = types.SimpleNamespace(agreed=lambda: next(self.stops, False))
        self.warnings = []

    def restore(self, abstract):
        if not self.checkpoints:
            self.writer.truncate_after(-1)
            return None
        step, state, unlogged, guards = self.checkpoints[-1]
        self.writer.truncate_after(step)
        return LoopState(step, state, unlogged, History.from_json(guards))

    def save(self, now):
        if now.step and (not self.checkpoints or self.checkpoints[-1][0] != now.step):
            guards = json.loads(json.dumps(now.history.to_json()))
            self.checkpoints.append((now.step, now.state, now.unlogged, guards))

    def begin(self, name):
        assert name == "update"

    def warn(self, step, texts):
        self.warnings += [(step, text) for text in texts]

    def log_step(self, step, metrics):
        self.writer.write(step, metrics)

    def is_save_due(self, step):
        return step % self._every == 0 or step == self.total_steps


class World:
    """A job whose weight gets one decimal digit per step; every call is recorded and may fail."""

    def __init__(self, folder, monkeypatch, evaluation=EVERY):
        self.folder, self.checkpoints, self.calls = folder, [], []
        self.fatal = {}  # maps a call to an exception, which the call raises once
        self.norms = {}  # maps a step to its gradient norm; 1 for other steps
        self.limits = []  # arguments of each call of the step
        folder.mkdir()
        self._agent = evaluation and types.SimpleNamespace(
            evaluation=evaluation,
            environments=types.SimpleNamespace(eval_tasks=["a task"]),
            set_params=self.set_params,
            sampler=types.SimpleNamespace(release=lambda: None, version=-1),
        )
        self._patch = monkeypatch

    def call(self, *what):
        self.calls.append(what)
        if what in self.fatal:
            raise self.fatal.pop(what)

    def set_params(self, params, *, version):
        self.params, self.version = params, version

    def evaluate(self, run, agent, settings, step):
        assert self.version == step
        self.call("evaluate", step)
        return {"eval/success": float(self.params) / 100}

    def take_step(self, state, step, grad_limit):
        self.call("step", step)
        self.limits.append(grad_limit)
        norm = self.norms[step] if step in self.norms else 1.0
        if norm <= grad_limit:
            state = state.replace(params=10 * state.params + step)
        measured = {"policy/grad_norm": norm, "policy/grad_norm_max": norm}
        return state, {"sft/loss": float(state.params)} | measured

    def fit(self, stops=(), **guards):
        self._patch.setattr(after_step, "evaluate_step", self.evaluate)
        self.run = run = FakeRun(self.folder, self.checkpoints)
        run.stops = iter(stops)
        guarding = GuardSettings(**dict(window=2) | guards)
        settings = types.SimpleNamespace(guards=guarding, agent=self._agent)
        parts = Parts(settings, MODEL, self._agent, None)
        supervised_loop.fit(run, parts, OPTIMIZER, self.take_step)

    def lines(self):
        text = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in text]

    def losses(self):
        return [line["sft/loss"] for line in self.lines() if line["step"]]


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path / "run", monkeypatch)


@pytest.fixture
def whole(tmp_path, monkeypatch):
    world = World(tmp_path / "whole", monkeypatch)
    world.fit()
    return world


def test_a_run_evaluates_at_the_start_every_n_steps_and_at_the_end(whole):
    evaluated = {line["step"]: "eval/success" in line for line in whole.lines()}
    assert evaluated == {0: True, 1: False, 2: True, 3: False, 4: True}
    assert whole.lines()[2].items() >= {"step": 2, "sft/loss": 101.0, "eval/success": 1.01}.items()


def test_a_run_without_agents_has_no_step_zero_and_never_evaluates(tmp_path, monkeypatch):
    world = World(tmp_path / "run", monkeypatch, evaluation=None)
    world.fit()
    assert [line["step"] for line in world.lines()] == [1, 2, 3, 4]
    assert world.calls == [("step", n) for n in range(4)]


@pytest.mark.parametrize(
    "point", [("evaluate", n) for n in (0, 2, 4)] + [("step", n) for n in range(4)]
)
@pytest.mark.parametrize(
    "end",
    [Killed(), StopRequested(), ServerUnavailable("coin", "down")],
    ids=lambda e: type(e).__name__,
)
def test_a_run_that_ends_at_any_point_resumes_to_the_same_log_and_state(world, whole, point, end):
    world.fatal[point] = end
    with pytest.raises(type(end)):
        world.fit()
    world.fit()
    assert world.lines() == whole.lines()
    assert world.checkpoints[-1][1].params == whole.checkpoints[-1][1].params


@pytest.mark.parametrize("end", [StopRequested(), ServerUnavailable("coin", "down")])
def test_a_step_whose_evaluation_is_stopped_is_not_repeated(world, end):
    world.fatal["evaluate", 2] = end
    with pytest.raises(type(end)):
        world.fit()
    world.calls.clear()
    world.fit()
    assert world.calls == [("evaluate", 2), ("step", 2), ("step", 3), ("evaluate", 4)]


def test_a_run_killed_after_a_repeated_evaluation_does_not_log_it_twice(world, whole):
    for point, end in ((("evaluate", 2), StopRequested), (("step", 2), Killed)):
        world.fatal[point] = end("here")
        with pytest.raises(end):
            world.fit()
    world.fit()
    assert world.lines() == whole.lines()


def test_a_stop_between_two_steps_saves_the_last_step(world, whole):
    with pytest.raises(StopRequested, match="stopped after step 1"):
        world.fit(stops=[True])
    assert world.checkpoints[-1][0] == 1
    world.fit()
    assert world.lines() == whole.lines()


SPIKE = {2: 50.0}  # a spike in the third step, after two steps that fill the window


@pytest.mark.parametrize(
    ("action", "losses"),
    [
        ("off", [10, 101, 1012, 10123]),
        ("warn", [10, 101, 1012, 10123]),
        ("skip", [10, 101, 101, 1013]),
    ],
)
def test_a_gradient_spike_is_applied_or_withheld_as_configured(
    tmp_path, monkeypatch, action, losses
):
    world = World(tmp_path / "run", monkeypatch)
    world.norms = SPIKE
    world.fit(grad_spike=action)
    assert world.losses() == losses
    assert len(world.run.warnings) == (action != "off")


def test_a_run_stopped_by_a_guard_is_saved_and_can_resume(world):
    world.norms = {1: 50.0}  # no checkpoint is due after this step
    with pytest.raises(GuardStop, match="stopped after step 2.*a gradient norm of 50.*lower"):
        world.fit(grad_spike="stop", window=1)
    assert world.lines()[-1].items() >= {"step": 2, "guards/grad_spike": 1.0}.items()
    assert world.checkpoints[-1][0] == 2
    world.fit(grad_spike="stop", window=1)
    assert world.losses() == [10, 10, 102, 1023]


def test_a_lasting_problem_is_reported_once(world):
    world.norms = {2: 50.0, 3: 900.0}
    world.fit(grad_spike="warn", grad_spike_factor=2.0)
    assert [step for step, _ in world.run.warnings] == [3]
    assert [line["guards/tripped"] for line in world.lines()[-2:]] == [1.0, 1.0]


def test_a_resumed_run_has_the_same_gradient_limits(world, tmp_path, monkeypatch):
    whole = World(tmp_path / "whole", monkeypatch)
    for one in (world, whole):
        one.norms = {0: 3.0, 1: 5.0, 2: 7.0, 3: 600.0}
    with pytest.raises(GuardStop):
        whole.fit(grad_spike="stop", window=1)
    world.fatal["step", 3] = Killed()  # fails after step 3 is saved
    with pytest.raises(Killed):
        world.fit(grad_spike="stop", window=1)
    with pytest.raises(GuardStop):
        world.fit(grad_spike="stop", window=1)
    assert world.limits[-1] == whole.limits[-1] == 70.0
