"""The server as a process: readiness line, signals, orphans, refusals."""

import contextlib
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

READY = re.compile(r"agentgym_envs textcraft ready on (http://127\.0\.0\.1:\d+)\n")
PATIENCE = 60  # seconds; imports are slow on a busy machine
# The source tree of agentgym_envs, for processes that start elsewhere.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2] / "envs")}


@contextlib.contextmanager
def running(*options):
    """(process, address) of a TextCraft server; the process is gone afterwards."""
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


def refused(*options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "agentgym_envs", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=ENVIRONMENT
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_stop_exits_with_zero(number):
    with running() as (process, url), requests.Session() as session:
        assert session.post(f"{url}/create", json={}).json()["id"] == 0
        process.send_signal(number)  # with a session open and a connection kept alive
        rest, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, rest) == (0, ""), errors


def test_three_hundred_episodes_leave_no_session_behind():
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
        waits = []
        for _ in range(20):
            start = time.monotonic()
            session.post(f"{url}/create", json={})
            waits.append(time.monotonic() - start)
        assert min(waits) < 0.03  # Nagle's algorithm would cost 0.04 s each time


def test_compat_is_agentgyms_behaviour():
    with running("--compat") as (_, url):
        answer = requests.post(f"{url}/step", json={"id": 9, "action": "x"}, timeout=PATIENCE)
        assert (answer.status_code, answer.json()) == (200, {"error": "The id 9 is not valid."})


def test_a_server_does_not_outlive_the_process_it_was_started_for():
    trainer = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with running("--parent-pid", str(trainer.pid)) as (process, url):
        time.sleep(1.5)  # longer than its poll
        assert process.poll() is None
        trainer.kill()
        trainer.communicate()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


def test_a_server_notices_that_its_own_parent_was_killed(tmp_path):
    # The parent stays a zombie of this test, so only the adoption of the server shows its end.
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
    deadline = time.monotonic() + PATIENCE
    with pytest.raises(requests.ConnectionError):
        while time.monotonic() < deadline:
            requests.get(f"{url}/health", timeout=PATIENCE)
            time.sleep(0.2)
    parent.communicate()


def test_a_port_in_use_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = refused("textcraft", "--port", port)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in result.stderr


def test_other_machines_are_let_in_with_a_token_only(tmp_path):
    result = refused("textcraft", "--host", "0.0.0.0", "--port", "0")
    assert result.returncode == 1
    assert "--token-file" in result.stderr
    empty = tmp_path / "token"
    empty.write_text("\n")
    result = refused("textcraft", "--port", "0", "--token-file", str(empty))
    assert (result.returncode, "one non-empty line" in result.stderr) == (1, True)


def test_a_token_file_protects_the_server(tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with running("--token-file", str(token)) as (_, url):
        assert requests.get(f"{url}/spec", timeout=PATIENCE).status_code == 401
        headers = {"Authorization": "Bearer s3cret"}
        spec = requests.get(f"{url}/spec", headers=headers, timeout=PATIENCE).json()
        assert (spec["name"], spec["num_tasks"]) == ("textcraft", 544)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["doom"], "invalid choice: 'doom'"),
        (["textcraft", "--port", "x"], "invalid int value: 'x'"),
        (["textcraft", "--port", "0", "--capacity", "0"], "capacity=0"),
    ],
)
def test_a_wrong_option_is_named(options, complaint):
    result = refused(*options)
    assert result.returncode != 0
    assert complaint in result.stderr
