"""Environments of users: errors name their line, and optional methods may be missing."""

import importlib
import json
import logging
import re

import pytest

from agentgym_envs.__main__ import main
from agentgym_envs.base import user_code
from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.host import SessionHost
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.served import load_environment
from agentgym_envs.base.user_code import place
from agentgym_envs.conformance import suite

GAME = """\
import json, math
import numpy as np
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment

class Game(Environment):
    def reset(self, data_idx):
        self.task = data_idx
        {reset}
        return StepResult("start", 0, 0, False)
    def step(self, action):
        {step}
        return StepResult("end", np.float32(1), np.int64(1), np.bool_(True))
{methods}

def make_served_environment():
    {make}
    tasks = [{{"data_idx": i, "split": "train"}} for i in range({tasks})]
    return standard_environment(
        Game, tasks, name="game", version="1", instructions="Play.", max_turns=3
    )
"""
EXPERT = "    def expert_action(self):\n        return 'go'"


@pytest.fixture
def make(tmp_path, monkeypatch, request):
    """Returns a function that writes a module of an environment and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    count = iter(range(9))

    def make(methods="", tasks=3, **lines):
        name = f"game_{abs(hash(request.node.name))}_{next(count)}"
        source = GAME.format(
            methods=methods,
            tasks=tasks,
            **{"reset": "pass", "step": "pass", "make": "pass"} | lines,
        )
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return name

    return make


def host_of(module):
    return SessionHost(load_environment(module), compat=False)


def fault_of(host, operation, argument=None):
    host.answer("create", 0, None)
    with pytest.raises(EnvironmentFault) as refused:
        if operation != "reset":
            host.answer("reset", 0, 0)
        host.answer(operation, 0, argument)
    return refused.value


@pytest.mark.parametrize(
    ("lines", "operation", "expected"),
    [
        (dict(step="1 / 0"), "step", "{}.py:12 in step: ZeroDivisionError: division by zero"),
        (
            dict(step="raise SystemExit('bye')"),
            "step",
            "{}.py:12 in step: RuntimeError: SystemExit",
        ),
        (dict(step="json.loads('[')"), "step", "{}.py:12 in step: JSONDecodeError: "),
        (dict(reset="return None"), "reset", "{}.py:7 in reset: the result is NoneType, expected"),
        (
            dict(step="return StepResult('x', 'high', 0, False)"),
            "step",
            "{}.py:11 in step: reward is 'high' (str), expected a number",
        ),
        (
            dict(step="return StepResult('x', 0, 0, 1)"),
            "step",
            "{}.py:11 in step: done is 1 (int), expected True or False",
        ),
        (
            dict(step="return StepResult(None, 0, 0, False)"),
            "step",
            "{}.py:11 in step: observation is NoneType, expected a text",
        ),
    ],
)
def test_an_error_names_the_last_line_of_the_environment(make, caplog, lines, operation, expected):
    module = make(**lines)
    host = host_of(module)
    argument = 0 if operation == "reset" else "go"
    first = fault_of(host, operation, argument)
    assert first.kind is ErrorKind.SIMULATOR and expected.format(module) in first.message
    assert "\n" not in first.message and first.message.startswith(first.origin)
    assert fault_of(host, operation, argument).origin == first.origin
    tracebacks = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(tracebacks) == 1  # only the first failure at a line is logged


def test_an_error_of_the_network_has_no_origin_because_it_may_pass(make):
    fault = fault_of(host_of(make(step="raise ConnectionError('gone')")), "step", "go")
    assert fault.origin == "" and "in step: ConnectionError: gone" in fault.message


@pytest.mark.parametrize("operation", ["expert_action", "valid_actions"])
def test_an_optional_method_is_refused_and_the_session_continues(make, operation):
    host = host_of(make())
    fault = fault_of(host, operation)
    assert fault.kind is ErrorKind.UNSUPPORTED and operation in fault.message
    assert json.loads(host.answer("step", 0, "go")) == {
        "observation": "end",
        "reward": 1.0,
        "score": 1,
        "done": True,
    }


def checked(module):
    report = []
    status = suite.run(module, compat=False, tasks=2, actions=3, write=report.append, options=None)
    return status, "".join(report)


def test_check_accepts_an_environment_without_optional_methods(make):
    status, report = checked(make())
    assert status == 0, report
    assert "solves tasks                      -   has no expert_action" in report
    assert "not refused                        -   has no valid_actions" in report
    assert "reset p50 " in report and "step p50 " in report and "p99 " in report


def test_check_reports_an_error_once_with_its_line(make, capfd):
    module = make(step="1 / 0")
    status, report = checked(module)
    assert status == 1
    assert report.count("division by zero") == 1
    assert f"{module}.py:12 in step: ZeroDivisionError" in report
    assert report.count("FAILED, cause 1") > 10 and "Traceback" not in report


def test_check_reports_an_environment_that_exits_and_keeps_its_prints_out_of_the_report(
    make, capfd
):
    assert main(["check", make(step="print('walking'); raise SystemExit('bye')")]) == 1
    shown = capfd.readouterr()
    assert "RuntimeError: SystemExit: bye" in shown.out and "25 FAILED" in shown.out
    assert "walking" in shown.err and "walking" not in shown.out


def test_check_without_tasks_gives_one_line(make, capfd):
    assert main(["check", make(tasks=0)]) == 1
    out, err = capfd.readouterr()
    assert err.count("\n") == 1 and "the manifest has no tasks" in err and out == ""


def test_demonstrations_name_the_line_or_the_missing_method(make, capfd, tmp_path):
    broken, plain = make(EXPERT, step="{}['low']"), make()
    out = tmp_path / "demos.jsonl"
    for module, expected in (
        (broken, f"game_1: {broken}.py:12 in step: KeyError: 'low'"),
        (plain, "Game has no expert_action, which the agent 'expert' needs"),
    ):
        command = ["demonstrations", module, "--tasks", "1", "--out", str(out)]
        assert main([*command, "--log-level=error"]) == 1
        assert expected in capfd.readouterr().err
    assert not list(tmp_path.glob("demos*"))


@pytest.mark.parametrize("command", [["check"], ["demonstrations", "--tasks=1", "--out=never"]])
def test_a_step_that_hangs_ends_the_command_with_its_line(make, capfd, monkeypatch, command):
    module = make(EXPERT, step="import time; time.sleep(1000)")
    monkeypatch.setattr(user_code, "HANG_SECONDS", 0.3)  # reached
    assert main([*command, module]) == 1
    assert f"{module}.py:12 in step: Hanging: no answer within" in capfd.readouterr().err


def test_demonstrations_of_the_expert_need_no_valid_actions(make, tmp_path):
    out = tmp_path / "new folder" / "demos.jsonl"
    assert main(["demonstrations", make(EXPERT), "--tasks", "1", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["success"] == 1


@pytest.mark.parametrize(
    ("line", "error"), [("int('many')", "ValueError"), ("raise SystemExit", "SystemExit")]
)
def test_an_error_while_an_environment_is_made_is_one_line(make, line, error):
    module = make(make=line)
    with pytest.raises(SetupError, match=rf"{module}.py:17 in make_served_environment: {error}"):
        load_environment(module)


def test_environments_of_this_project_have_lines_too():
    world = load_environment("agentgym_envs.maze.served").factory()
    world.reset(0)
    with pytest.raises(AttributeError) as failed:
        world.step(None)
    assert re.fullmatch(r"\w+\.py:\d+ in \w+", place(failed.value))
