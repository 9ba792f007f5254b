"""The server as a process: readiness line, signals, orphans and rejected options."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import requests

from agentgym_envs.__main__ import main
from agentgym_envs.base import serve
from agentgym_envs.registry import ENVIRONMENTS
from tests.waiting import PATIENCE_S, until

READY = re.compile(r"agentgym_envs textcraft ready on (http://127\.0\.0\.1:\d+)\n")
# Environment variables that make agentgym_envs importable for processes in other folders.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2] / "envs")}


@contextlib.contextmanager
def running(*options):
    """Yields (process, address) of a TextCraft server; stops the process afterwards."""
    command = [sys.executable, "-m", "agentgym_envs", "textcraft", "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready, f"{line!r} instead of the ready line; stderr: {process.stderr.read()}"
        yield process, ready[1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_stop_exits_with_zero(number):
    with running() as (process, url), requests.Session() as session:
        assert session.post(f"{url}/create", json={}).json()["id"] == 0
        process.send_signal(number)  # one session and one connection are open
        rest, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, rest) == (0, ""), errors


@pytest.mark.slow
def test_three_hundred_episodes_leave_no_session():
    with running("--capacity", "3") as (_, url), requests.Session() as session:
        for data_idx in range(300):
            session_id = session.post(f"{url}/create", json={}).json()["id"]
            session.post(f"{url}/reset", json={"id": session_id, "data_idx": data_idx})
            step = session.post(f"{url}/step", json={"id": session_id, "action": "inventory"})
            assert step.json()["reward"] == 0
            assert session.post(f"{url}/close", json={"id": session_id}).json() is True
        assert session.get(f"{url}/health").json()["sessions"] == 0


def test_an_answer_does_not_wait_for_the_clients_acknowledgement():
    with running() as (_, url), requests.Session() as session:
        session.get(f"{url}/health")

        def is_quick():
            start = time.monotonic()
            session.post(f"{url}/create", json={})
            # Nagle's algorithm would add 0.04 s to every request
            return time.monotonic() - start < 0.03  # reached

        assert any(is_quick() for _ in range(1000))


@pytest.mark.slow
def test_a_server_ends_with_the_process_that_it_was_started_for():
    trainer = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with running("--parent-pid", str(trainer.pid)) as (process, url):
        time.sleep(1.5)  # longer than the interval at which the server checks its parent
        assert process.poll() is None
        trainer.kill()
        trainer.communicate()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def test_a_server_ends_when_its_parent_is_killed(tmp_path):
    # The killed parent remains a zombie of this test process, so the server can only notice that
    # its parent process changed.
    program = (
        "import os, subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, '-m', 'agentgym_envs', 'textcraft',\n"
        "    '--port', '0', '--parent-pid', str(os.getpid())], stdout=sys.stdout)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    url = READY.fullmatch(parent.stdout.readline())[1]
    parent.kill()
    with pytest.raises(requests.ConnectionError):
        until(lambda: not requests.get(f"{url}/health", timeout=PATIENCE_S))
    parent.communicate()


@pytest.mark.parametrize("place", [("127.0.0.1", 70000), ("127.0.0.1", -1), ("a" * 64, 0)])
def test_an_impossible_address_gives_an_error_of_one_line(place):
    with pytest.raises(serve.ServeError, match=f"cannot listen on {place[0]} port {place[1]}"):
        serve.bind(*place)


def test_a_port_in_use_gives_an_error_of_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "agentgym_envs", "textcraft", "--port", port]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT
        )
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in result.stderr


def test_a_token_file_protects_a_server_with_agentgyms_behaviour(tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with running("--compat", "--token-file", str(token)) as (_, url), requests.Session() as session:
        assert session.get(f"{url}/spec").status_code == 401
        session.headers["Authorization"] = "Bearer s3cret"
        spec = session.get(f"{url}/spec").json()
        assert (spec["name"], spec["num_tasks"]) == ("textcraft", 544)
        answer = session.post(f"{url}/step", json={"id": 9, "action": "x"})
        assert (answer.status_code, answer.json()) == (200, {"error": "The id 9 is not valid."})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--doom"], "COMMAND"),
        (["textcraft", "--port", "x"], "invalid int value: 'x'"),
        (["textcraft", "--port", "0", "--capacity", "0"], "capacity=0"),
        (["textcraft", "--port", "0", "--host", "0.0.0.0"], "--token-file"),
        (["textcraft", "--port", "0", "--token-file", os.devnull], "one non-empty line"),
    ],
)
def test_the_error_for_an_invalid_option_names_it(options, complaint, capsys):
    try:
        status = main(options)
    except SystemExit as error:
        status = error.code
    assert status and complaint in capsys.readouterr().err


@pytest.fixture
def modules(tmp_path):
    """Returns environment variables; their PYTHONPATH includes a folder with a user's modules."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "silent.py").write_text("KIND = None\n")
    (tmp_path / "needy.py").write_text("import hinges\n")
    (tmp_path / "typo.py").write_text("def make_served_environment(:\n")
    (tmp_path / "forgetful.py").write_text("def make_served_environment():\n    print\n")
    (tmp_path / "inner" / "needy.py").write_text("import hinges\n")
    (tmp_path / "inner" / "game.py").write_text(
        "import dataclasses\nfrom agentgym_envs.maze import served\n\n"
        "def make_served_environment():\n    made = served.make_served_environment()\n"
        "    return dataclasses.replace(made, spec=dataclasses.replace(made.spec, name='cave'))\n"
    )
    return {**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{tmp_path}"}


KNOWN = f"is neither an environment ({', '.join(ENVIRONMENTS)}) nor a module"


@pytest.mark.parametrize("command", [[], ["check"], ["demonstrations"]])
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("textcarft", f"'textcarft' {KNOWN}"),
        ("inner.textcraft", f"'inner.textcraft' {KNOWN}"),
        ("outer.game", f"'outer.game' {KNOWN}"),
        ("inner/game.py", "'inner/game.py' is a file; write the name of its module, game, and"),
        ("", f"'' {KNOWN}"),
        ("silent", "the module silent has no function make_served_environment()"),
        ("needy", "the module needy cannot be imported: No module named 'hinges'"),
        ("inner.needy", "the module inner.needy cannot be imported: No module named 'hinges'"),
        ("typo", "the module typo cannot be imported: "),
        ("forgetful", "make_served_environment() of forgetful returned NoneType, expected a"),
    ],
)
def test_an_invalid_environment_gives_an_error_of_one_line(
    modules, monkeypatch, capsys, command, name, complaint
):
    for entry in modules["PYTHONPATH"].split(os.pathsep):
        monkeypatch.syspath_prepend(entry)
    more = ["--tasks", "1", "--out", "never.jsonl"] if command == ["demonstrations"] else []
    assert main([*command, name, *more]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 1
    assert shown.err.startswith(f"agentgym_envs: {complaint}")


def test_a_module_is_served_under_the_name_of_its_spec(modules):
    command = [sys.executable, "-m", "agentgym_envs", "inner.game", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=modules)
    try:
        ready = re.fullmatch(r"agentgym_envs cave ready on (http\S+)\n", process.stdout.readline())
        spec = requests.get(f"{ready[1]}/spec", timeout=PATIENCE_S).json()
        assert (spec["name"], spec["num_tasks"]) == ("cave", 556)
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_a_check_without_a_traceback(modules, tmp_path):
    (tmp_path / "hanging.py").write_text(
        "import time\n\ndef make_served_environment():\n"
        "    print('made', flush=True)\n    time.sleep(1000)\n"
    )
    command = [sys.executable, "-m", "agentgym_envs", "check", "hanging"]
    streams = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen(command, env=modules, **streams)
    assert process.stderr.readline() == "made\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (130, "\ninterrupted\n")


def test_demonstrations_of_a_module_are_recorded(modules, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "demos.jsonl"
    assert main(["demonstrations", "inner.game", "--tasks", "cave_3,40", "--out", str(out)]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["item_id"] for record in records] == ["cave_3", "cave_40"]


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_all_environments_and_commands(capsys, arguments):
    with pytest.raises(SystemExit):
        main(arguments)
    text = capsys.readouterr().out
    assert all(f"serve {name}" in text for name in ENVIRONMENTS)
    assert "demonstrations" in text and "check" in text and "my_envs.guess" in text


@pytest.mark.parametrize("options", [["--tasks", "0"], ["--actions", "0"]])
def test_a_check_needs_at_least_one_task_and_action(options, capsys):
    assert main(["check", "maze", *options]) == 1
    assert "must be at least 1" in capsys.readouterr().err
