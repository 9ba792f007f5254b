"""Workers: a simulator that hangs, dies or answers wrongly loses only its current session.

All other sessions continue.
"""

import concurrent.futures
import os
import re
import signal
import sys

import psutil
import pytest

from agentgym_envs.base.protocol import STATUS, ErrorKind
from tests.envs.serving import DOOR, serving
from tests.run_python import run_python
from tests.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def server():
    with serving(DOOR, step_seconds=1.0, capacity=100) as client:
        yield client


def started(client, data_idx=0) -> int:
    session_id = client.post("/create").json()["id"]
    client.post("/reset", json={"id": session_id, "data_idx": data_idx})
    return session_id


def step(client, session_id, action):
    return client.post("/step", json={"id": session_id, "action": action})


def error_of(answer) -> ErrorKind:
    kind = ErrorKind(answer.json()["type"])
    assert answer.status_code == STATUS[kind]
    return kind


def restarts(client) -> int:
    return client.get("/health").json()["worker_restarts"]


def test_an_exception_of_the_simulator_is_reported_and_ends_its_session(server):
    session_id, before = started(server), restarts(server)
    answer = step(server, session_id, "crash")
    assert error_of(answer) is ErrorKind.SIMULATOR
    assert "hinge broke" in answer.json()["error"]
    assert error_of(step(server, session_id, "open")) is ErrorKind.UNKNOWN_SESSION
    assert restarts(server) == before  # the worker process continues


def test_a_reward_that_is_not_a_number_ends_only_its_session(server):
    session_id, other, before = started(server), started(server), restarts(server)
    assert error_of(step(server, session_id, "nan")) is ErrorKind.SIMULATOR
    assert error_of(step(server, session_id, "open")) is ErrorKind.UNKNOWN_SESSION
    assert step(server, other, "knock").status_code == 200
    assert restarts(server) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        ("die", ErrorKind.SIMULATOR),
        ("exit", ErrorKind.SIMULATOR),
        ("lose", ErrorKind.SIMULATOR),
        ("sleep 60", ErrorKind.TIMEOUT),
        ("spin", ErrorKind.TIMEOUT),
    ],
)
def test_the_loss_of_a_process_ends_only_the_running_session(server, trouble, kind):
    fresh = server.post("/create").json()["id"]
    played, ended, bad = started(server, 1), started(server), started(server)
    step(server, played, "knock"), step(server, ended, "open"), step(server, bad, "knock")
    pid = server.get("/state", params={"id": played}).json()["pid"]
    assert error_of(step(server, bad, trouble)) is kind
    assert error_of(step(server, bad, "knock")) is ErrorKind.UNKNOWN_SESSION
    # The other sessions of the worker process are restored with their state.
    assert step(server, played, "knock").json()["observation"] == "2: you did knock"
    state = server.get("/state", params={"id": played}).json()
    assert (state["door"], state["pid"] != pid) == (1, True)
    assert error_of(step(server, ended, "knock")) is ErrorKind.FINISHED
    assert server.get("/observation", params={"id": fresh}).json() == "unseen"
    assert not psutil.pid_exists(pid)


def test_the_log_shows_where_a_step_hangs(capfd):
    with serving(DOOR, step_seconds=0.5) as client:  # reached
        assert error_of(step(client, started(client), "sleep 60")) is ErrorKind.TIMEOUT
    assert re.search(r'door.py", line \d+ in step', capfd.readouterr().err)


def test_a_process_that_dies_between_two_requests_ends_no_session(server):
    session_id = started(server)
    step(server, session_id, "knock")
    pid = server.get("/state", params={"id": session_id}).json()["pid"]
    os.kill(pid, signal.SIGKILL)
    assert step(server, session_id, "knock").json()["observation"] == "2: you did knock"


def test_an_episode_that_cannot_be_replayed_is_reported_and_ends(server, caplog):
    by_chance, bad = started(server), started(server)
    step(server, by_chance, "dice")
    step(server, bad, "die")
    assert "ended during step with status -9" in caplog.text
    answer = step(server, by_chance, "knock")
    assert error_of(answer) is ErrorKind.SIMULATOR
    assert "led elsewhere" in answer.json()["error"]
    assert error_of(step(server, by_chance, "knock")) is ErrorKind.UNKNOWN_SESSION


@pytest.mark.slow
def test_sessions_are_spread_over_workers_and_stay_on_their_worker(tmp_path):
    with serving(DOOR, workers=2) as client:
        sessions = [started(client) for _ in range(6)]
        pids = [client.get("/state", params={"id": s}).json()["pid"] for s in sessions]
        assert sorted(map(pids.count, set(pids))) == [3, 3]
        again = [client.get("/state", params={"id": s}).json()["pid"] for s in sessions]
        assert again == pids
        # A slow step in one worker neither delays nor restarts the other worker.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            slow = pool.submit(step, client, sessions[0], f"hold {tmp_path / 'go'}")
            until((tmp_path / "go.began").exists)
            other = next(s for s, pid in zip(sessions, pids, strict=True) if pid != pids[0])
            assert step(client, other, "knock").status_code == 200
            assert not slow.done()
            (tmp_path / "go").touch()
            assert slow.result().status_code == 200


def test_a_request_that_waits_too_long_is_busy_and_not_executed(tmp_path):
    with serving(DOOR, busy_seconds=0.2) as client, concurrent.futures.ThreadPoolExecutor() as p:
        slow, other = started(client), started(client)
        waiting = p.submit(step, client, slow, f"hold {tmp_path / 'go'}")
        until((tmp_path / "go.began").exists)
        assert error_of(step(client, other, "open")) is ErrorKind.BUSY
        (tmp_path / "go").touch()
        assert waiting.result().status_code == 200
        assert step(client, other, "knock").json()["observation"] == "1: you did knock"


def test_output_of_a_simulator_does_not_reach_standard_output(server, capfd):
    assert step(server, started(server), "print").status_code == 200
    assert "talks" not in capfd.readouterr().out


def test_an_environment_that_cannot_run_gives_an_error_of_one_line():
    program = (
        "import sys\n"
        "from agentgym_envs import __main__ as cli\n"
        "from agentgym_envs.registry import ENVIRONMENTS, RegistryEntry\n"
        "cli.ENVIRONMENTS['textcraft'] = RegistryEntry('tests.envs.base.hingeless', 0)\n"
        "sys.exit(cli.main(['textcraft', '--port', '0']))\n"
    )
    path = os.pathsep.join(sys.path)
    done = run_python("-c", program, timeout=PATIENCE_S, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "agentgym_envs: the door needs hinges. Install them first.\n"


@pytest.mark.slow
def test_five_hundred_sessions_leak_no_memory_or_file_handles(server):
    process = psutil.Process()

    def play(count):
        for _ in range(count):
            session_id = started(server)
            for _ in range(3):
                assert step(server, session_id, "knock").status_code == 200
            assert server.post("/close", json={"id": session_id}).json() is True

    play(30)
    handles, children = process.num_fds(), process.children(recursive=True)
    memory = [process.memory_info().rss, *(child.memory_info().rss for child in children)]
    play(500)
    after = [process.memory_info().rss, *(child.memory_info().rss for child in children)]
    assert process.num_fds() == handles
    assert process.children(recursive=True) == children
    assert max(b - a for a, b in zip(memory, after, strict=True)) < 8 * 2**20
