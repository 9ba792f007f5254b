"""Training jobs with an agent program: learning data, tools, resuming and refused configs."""

import json
import pathlib
import signal

import numpy as np
import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.rl.rl_config import parse
from tests.integration import tiny
from tests.other_environment import install
from tests.processes import launch

ROOT = pathlib.Path(__file__).parents[2]
COMPACTION = "agentgym_jax.programs.compaction"
PROGRAMS = "tests.programs.programs"


def config(**program):
    """Returns the tiny config with an agent program."""
    c = tiny.get_config()
    c.rollout.show_turn_budget = "none"
    c.program = dict(program)
    return c


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ({}, "give exactly one"),
        (dict(function="a:b", command="c"), "give exactly one"),
        (dict(function="no.such.module:play"), "No module named"),
        (dict(function="json:no_such_function"), "no_such_function"),
        (dict(function="json"), "expected package.module:function"),
        (dict(command="x", timeout_s=0.0), "timeout_s"),
        (dict(command="x", time=3), "time"),
        (dict(command="x", options=dict(a=1)), "no effect on a command"),
        (dict(function=f"{COMPACTION}:play"), "program.options lacks compact_above"),
        (dict(function=f"{COMPACTION}:play", options=dict(compact_above=0)), "at least 1 .tokens"),
        (dict(function=f"{COMPACTION}:play", options=dict(compact=9)), "program.options.compact: "),
        (dict(function=f"{PROGRAMS}:untyped", options=dict(limit=1)), "cannot be checked"),
    ],
    ids=str,
)
def test_an_unusable_program_is_refused_before_the_run(program, found):
    with pytest.raises(ConfigError, match=found):
        parse(plain(config(**program)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def play(:", r"invalid syntax \(my_agent.py, line 1\)"),
        ("import json\nplay = jsn", r"my_agent.py, line 2: NameError: name 'jsn' is not defined"),
        ("import sys\nsys.exit(3)", "my_agent.py, line 2: SystemExit: 3"),
    ],
)
def test_a_module_that_fails_is_refused_with_its_line(tmp_path, monkeypatch, text, found):
    (tmp_path / "my_agent.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"program.function='my_agent:play': .*{found}"):
        parse(plain(config(function="my_agent:play")))


def test_a_turn_budget_that_the_program_would_not_show_is_refused():
    c = config(command="x")
    c.rollout.show_turn_budget = "start"
    with pytest.raises(ConfigError, match="show_turn_budget='start' has no effect"):
        parse(plain(c))


CONFIG = """
import sys
sys.path.insert(0, {root!r})
from tests.integration import tiny
def get_config(arg=None):
    c = tiny.get_config()
    c.total_steps = 3
    c.rollout.show_turn_budget = "none"
    c.horizon = dict(kind="fixed", turns=3)
    c.program = dict(function="tests.programs.{module}:{function}")
    c.rollout.max_off_policy_steps = {ahead}
    if {function!r} == "langgraph":
        script = {root!r} + "/tests/programs/langgraph_program.py"
        path = {root!r} + ":" + {root!r} + "/envs"
        c.program = dict(command="env PYTHONPATH=" + path + " {python} " + script)
        c.total_steps = 2
        c.rollout.tasks_per_step = c.rollout.group_size = 2
        c.learner.mini_batches = 1
    return c
"""


def train(folder, function, status=0, python="", module="programs", ahead=0, **environ):
    """Runs the tiny job with a program in a new process; returns the records of the last step."""
    path = folder / f"{function}.py"
    fields = dict(module=module, function=function, python=python, ahead=ahead)
    path.write_text(CONFIG.format(root=str(ROOT), **fields))
    done = launch.train_alone(path, folder / "run", **environ)
    assert done.returncode == status, done.stderr
    files = sorted((folder / "run/trajectories").glob("step_*.jsonl"))
    return [json.loads(line) for line in files[-1].read_text().splitlines()] if files else []


@pytest.mark.slow
@pytest.mark.parametrize("function", ["summariser", "parallel", "tools"])
def test_programs_with_branches_and_tools_are_trained(tmp_path, function):
    records = train(tmp_path, function)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    metrics = json.loads(lines[-1])
    assert metrics["policy/updates"] >= 1
    assert metrics["policy/logprob_gap_max"] < 1e-3
    if function != "tools":
        assert all(record["branch_starts"] for record in records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "ahead"),
    [
        ("programs", "stop_once", 0),
        ("programs", "stop_once", 3),
        ("client_programs", "stop_compacting", 0),
    ],
)
def test_a_stopped_run_resumes_with_the_episodes_of_an_undisturbed_one(
    tmp_path, module, function, ahead
):
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    options = dict(module=module, ahead=ahead, STOP_FILE=str(tmp_path))
    whole = train(tmp_path / "whole", function, **options)
    assert any(record.get("branch_starts") for record in whole)
    versions = {v for record in whole for v in record["policy_versions"]}
    assert versions == ({-1, 0, 1} if ahead else {-1, 2})
    options["STOP_FILE"] = str(tmp_path / "stop")
    train(tmp_path / "parts", function, status=128 + signal.SIGTERM, **options)
    parts = train(tmp_path / "parts", function, **options)
    for ours, theirs in zip(whole, parts, strict=True):
        assert ours["tokens"] == theirs["tokens"]
        # Requests arrive in no fixed order, so they share prefill calls of different sizes, and
        # sums are rounded differently.
        np.testing.assert_allclose(ours["logprobs"], theirs["logprobs"], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_langgraph_agent_is_trained(tmp_path):
    python = install(tmp_path / "venv", ["langgraph", "langchain-openai", "requests"])
    records = train(tmp_path, "langgraph", python=python)
    assert all(record["outcome"] != "program_error" for record in records)
    assert any(len(record["turns"]) > 1 for record in records)
