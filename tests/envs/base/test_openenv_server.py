"""The server in OpenEnv's protocol: episodes, errors, limits and routes, over real sockets."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from agentgym_envs.__main__ import main
from agentgym_envs.base.openenv import application, messages
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS
from tests.envs.base.door import SPEC
from tests.envs.serving import DOOR, serving_openenv
from tests.waiting import PATIENCE_S


class Session:
    """A connection to a server, with OpenEnv's messages as methods."""

    def __init__(self, websocket):
        self.websocket = websocket

    def send(self, message):
        self.websocket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
        return self.receive()

    def receive(self):
        return json.loads(self.websocket.recv(PATIENCE_S))

    def reset(self, **data):
        return self.send({"type": "reset", "data": data})["data"]

    def step(self, text):
        return self.send({"type": "step", "data": {"text": text}})["data"]


def connected(client, **options):
    """Returns a new connection to the server of an HTTP client."""
    url = f"{client.base_url}".replace("http", "ws").rstrip("/")
    return connect(f"{url}/ws", proxy=None, **options)


@pytest.fixture
def session(server):
    with connected(server) as websocket:
        yield Session(websocket)


@pytest.fixture(scope="module")
def server():
    with serving_openenv(DOOR, capacity=50) as client:
        yield client


def assert_error(answer, code, kind):
    assert (answer["type"], answer["data"]["code"]) == ("error", code), answer
    assert answer["data"]["kind"] == kind
    assert answer["data"]["message"]


@pytest.mark.parametrize("name", ["textcraft", "babyai", "maze", "wordle"])
def test_an_expert_episode_equals_that_of_the_environment(name):
    module = ENVIRONMENTS[name].module
    served = load_environment(module)
    with serving_openenv(module) as client, connected(client) as websocket:
        session = Session(websocket)
        for data_idx in (0, 13):
            environment = served.factory()
            expected = environment.reset(data_idx)
            answer = session.reset(data_idx=data_idx)
            while True:
                score, reward = expected.score, expected.reward / served.spec.max_score
                success = expected.done and score >= served.spec.success_score
                metadata = {"task_id": f"{name}_{data_idx}", "score": score, "success": success}
                assert answer == {
                    "observation": {"text": expected.observation, "metadata": metadata},
                    "reward": reward,
                    "done": expected.done,
                    "metadata": metadata,
                }
                if expected.done:
                    break
                action = environment.expert_action()
                expected, answer = environment.step(action), session.step(action)
            assert expected.reward > 0 and success


def test_a_binary_message_keeps_its_characters(session):
    session.reset(data_idx=0)
    message = {"type": "step", "data": {"text": "é 漢"}}
    answer = session.send(json.dumps(message, ensure_ascii=False).encode())
    assert answer["data"]["observation"]["text"] == "1: you did é 漢"


def test_a_session_plays_several_episodes_and_shows_its_state(session):
    assert session.send({"type": "state"}) == {
        "type": "state",
        "data": {"episode_id": None, "step_count": 0},
    }
    assert session.reset(data_idx=2, episode_id="a")["observation"]["text"] == "door 2 is shut"
    assert session.step("knock")["done"] is False
    state = session.send({"type": "state", "data": {}})["data"]
    assert (state["episode_id"], state["step_count"], state["task_id"]) == ("a", 1, "door_2")
    assert state["available_actions"] == ["open", "knock"] and state["facts"]["door"] == 2
    assert session.step("open")["reward"] == 1
    assert "available_actions" not in session.send({"type": "state"})["data"]
    assert_error(
        session.send({"type": "step", "data": {"text": "open"}}),
        messages.EXECUTION_ERROR,
        ErrorKind.FINISHED,
    )
    assert session.reset(task_id="door_1")["observation"]["text"] == "door 1 is shut"


@pytest.mark.parametrize(
    ("data", "data_idx"),
    [
        ({"data_idx": 1}, 1),
        ({"task_id": "door_2"}, 2),
        ({"index": 1}, 1),
        ({"split": "train", "index": 2}, 2),
        ({"seed": 4}, 1),
        ({"split": "train", "seed": 3}, 0),
        ({"seed": 2, "something": "else"}, 2),
    ],
)
def test_a_reset_chooses_a_task(session, data, data_idx):
    assert session.reset(**data)["metadata"]["task_id"] == f"door_{data_idx}"


def test_a_reset_without_data_starts_any_task(session):
    assert session.send({"type": "reset"})["data"]["done"] is False


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", messages.INVALID_JSON),
        (b"\xff\xfe", messages.INVALID_JSON),
        ("[" * 2000, messages.INVALID_JSON),
        ("[]", messages.VALIDATION_ERROR),
        ('"reset"', messages.VALIDATION_ERROR),
        ("{}", messages.VALIDATION_ERROR),
        ({"type": "dance"}, messages.UNKNOWN_TYPE),
        ({"type": None}, messages.UNKNOWN_TYPE),
        ({"type": "mcp", "data": {}}, messages.UNKNOWN_TYPE),
        ({"type": "step"}, messages.VALIDATION_ERROR),
        ({"type": "step", "data": []}, messages.VALIDATION_ERROR),
        ({"type": "step", "data": {"text": 3}}, messages.VALIDATION_ERROR),
        ({"type": "step", "data": {"text": "x", "more": 1}}, messages.VALIDATION_ERROR),
        ({"type": "step", "data": {"action": {"text": "x"}}}, messages.VALIDATION_ERROR),
        ({"type": "reset", "data": {"seed": -1}}, messages.VALIDATION_ERROR),
        ({"type": "reset", "data": {"data_idx": "1"}}, messages.VALIDATION_ERROR),
        ({"type": "reset", "data": 3}, messages.VALIDATION_ERROR),
    ],
)
def test_an_unusable_message_is_a_typed_error_and_the_session_continues(session, message, code):
    session.reset(data_idx=1)
    assert_error(session.send(message), code, ErrorKind.INVALID_REQUEST)
    assert session.step("knock")["observation"]["text"] == "1: you did knock"


@pytest.mark.parametrize(
    "data",
    [
        {"data_idx": 3},
        {"data_idx": -1},
        {"data_idx": 10**30},
        {"task_id": "door_3"},
        {"task_id": "window_0"},
        {"task_id": "door_x"},
        {"task_id": f"door_{'9' * 3000}"},
        {"split": "moon"},
        {"index": 3},
        {"split": "train", "index": -1},
    ],
)
def test_an_unknown_task_is_a_typed_error(session, data):
    answer = session.send({"type": "reset", "data": data})
    assert_error(answer, messages.VALIDATION_ERROR, ErrorKind.UNKNOWN_TASK)
    assert session.reset(data_idx=0)["done"] is False


# TextCraft's sessions start with a task, as at AgentGym.
@pytest.mark.parametrize("module", [DOOR, ENVIRONMENTS["textcraft"].module])
def test_a_step_needs_a_reset(module):
    with serving_openenv(module) as client, connected(client) as websocket:
        session = Session(websocket)
        for data in ({"seed": -1}, {"task_id": "moon_1"}):
            answer = session.send({"type": "step", "data": {"text": "inventory"}})
            assert_error(answer, messages.EXECUTION_ERROR, ErrorKind.NOT_RESET)
            assert session.send({"type": "reset", "data": data})["type"] == "error"


def test_a_simulator_that_fails_costs_one_episode(session):
    session.reset(data_idx=0)
    crash = session.send({"type": "step", "data": {"text": "crash"}})
    assert_error(crash, messages.EXECUTION_ERROR, ErrorKind.SIMULATOR)
    lost = session.send({"type": "step", "data": {"text": "open"}})
    assert_error(lost, messages.EXECUTION_ERROR, ErrorKind.NOT_RESET)
    assert session.send({"type": "state"})["data"]["episode_id"] is None
    session.reset(data_idx=0)
    assert session.step("open")["reward"] == 1


def test_a_worker_that_dies_is_replaced_and_the_other_sessions_continue():
    with serving_openenv(DOOR) as client:
        with connected(client) as one, connected(client) as two:
            first, second = Session(one), Session(two)
            first.reset(data_idx=1)
            first.step("knock")
            second.reset(data_idx=2)
            answer = second.send({"type": "step", "data": {"text": "die"}})
            assert_error(answer, messages.EXECUTION_ERROR, ErrorKind.SIMULATOR)
            assert first.step("knock")["observation"]["text"] == "2: you did knock"


def test_a_full_server_says_so_and_closes_the_connection():
    with serving_openenv(DOOR, capacity=1) as client:
        with connected(client) as first:
            assert Session(first).reset(data_idx=0)["done"] is False
            with connected(client) as second:
                answer = Session(second).receive()
                assert_error(answer, messages.CAPACITY_REACHED, ErrorKind.CAPACITY)
                with pytest.raises(ConnectionClosed):
                    second.recv(PATIENCE_S)
            answer = client.post("/reset", json={"data_idx": 0})
            assert (answer.status_code, answer.json()["type"]) == (503, ErrorKind.CAPACITY)
        assert retried_reset(client)["done"] is False


def retried_reset(client):
    """Returns the answer to a reset; waits until the server has noticed the end of a session."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with connected(client) as websocket:
            with contextlib.suppress(ConnectionClosed):  # by a full server, after its error
                websocket.send('{"type": "reset", "data": {"data_idx": 0}}')
            answer = json.loads(websocket.recv(PATIENCE_S))
        if answer["type"] == "observation":
            return answer["data"]
        assert answer["data"]["code"] == messages.CAPACITY_REACHED
        assert time.monotonic() < deadline, "the session was not released"
        time.sleep(0.02)


@pytest.mark.parametrize("farewell", ["close message", "close frame", "broken connection"])
def test_the_end_of_a_connection_releases_its_session(farewell):
    with serving_openenv(DOOR, capacity=1) as client:
        for _ in range(100 if farewell == "broken connection" else 3):
            assert retried_reset(client)["done"] is False
            websocket = connected(client).__enter__()
            if farewell == "close message":
                with contextlib.suppress(ConnectionClosed):
                    websocket.send('{"type": "close"}')
                with pytest.raises(ConnectionClosed):
                    while True:  # the server may have been full
                        websocket.recv(PATIENCE_S)
            elif farewell == "close frame":
                websocket.close()
            else:
                websocket.socket.shutdown(socket.SHUT_RDWR)
        assert retried_reset(client)["done"] is False


def test_a_silent_connection_is_closed():
    with serving_openenv(DOOR, idle_seconds=0.3) as client:
        with connected(client) as websocket:
            Session(websocket).reset(data_idx=0)
            with pytest.raises(ConnectionClosed):
                websocket.recv(PATIENCE_S)


def test_a_message_above_the_limit_ends_the_connection(server):
    with connected(server) as websocket:
        session = Session(websocket)
        session.reset(data_idx=0)
        websocket.send(json.dumps({"type": "step", "data": {"text": "x" * 5000}}))
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(PATIENCE_S)
        assert closed.value.rcvd.code == 1009
    answer = server.post("/reset", json={"episode_id": "x" * 5000})
    assert (answer.status_code, answer.json()["type"]) == (413, ErrorKind.TOO_LARGE)


def test_the_routes_describe_the_server(server):
    assert server.get("/health").json() == {"status": "healthy"}
    assert server.get("/metadata").json() == {
        "name": "door",
        "description": SPEC.instructions,
        "version": "1",
    }
    schema = server.get("/schema").json()
    assert set(schema) == {"action", "observation", "state"}
    assert schema["action"]["required"] == ["text"]
    assert server.get("/state").json() == {"episode_id": None, "step_count": 0}
    assert server.get("/spec").json()["num_tasks"] == 3
    assert server.get("/step").status_code == 405
    assert server.get("/nothing").status_code == 404


def test_the_task_routes_list_the_tasks(server):
    tasks = [{"task_id": f"door_{i}", "data_idx": i, "split": "train"} for i in range(3)]
    ask = {"split": "train"}
    assert server.get("/list_environments").json() == ["door"]
    assert server.get("/door/splits").json() == [{"name": "train", "type": "train"}]
    listed = server.post("/Door/tasks", json=ask).json()
    assert listed == {"tasks": tasks, "env_name": "door"}
    assert server.post("/door/num_tasks", json=ask).json() == {"num_tasks": 3}
    assert server.post("/door/task", json={**ask, "index": 1}).json() == {"task": tasks[1]}
    cut = server.post("/door/task_range", json={**ask, "start": 1}).json()
    assert cut == {"tasks": tasks[1:]}


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/window/num_tasks", {"split": "train"}, ErrorKind.UNKNOWN_TASK),
        ("/door/num_tasks", {"split": "moon"}, ErrorKind.UNKNOWN_TASK),
        ("/door/task", {"split": "train", "index": 3}, ErrorKind.UNKNOWN_TASK),
        ("/door/task", {"split": "train", "index": "1"}, ErrorKind.INVALID_REQUEST),
        ("/door/tasks", {}, ErrorKind.INVALID_REQUEST),
        ("/door/tasks", [], ErrorKind.INVALID_REQUEST),
        ("/reset", {"data_idx": 9}, ErrorKind.UNKNOWN_TASK),
        ("/step", {"action": {"text": "open"}}, ErrorKind.NOT_RESET),
        ("/step", {"action": {}}, ErrorKind.INVALID_REQUEST),
    ],
)
def test_an_unusable_request_is_a_typed_error(server, path, body, kind):
    answer = server.post(path, json=body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["type"] == kind


def test_an_endpoint_with_a_bug_is_answered_and_announces_the_end_of_the_connection(caplog):
    async def fail(request):
        raise ZeroDivisionError

    backend = SimpleNamespace(served=SimpleNamespace(spec=SimpleNamespace(name="door")))
    route = application._Routes(backend, None, None)._route("/bug", "GET", fail)
    answer = TestClient(Starlette(routes=[route])).get("/bug")
    assert answer.status_code == 500 and answer.json()["type"] == "simulator"
    assert answer.headers["connection"] == "close"
    assert "ZeroDivisionError" in caplog.text


def test_a_reset_over_http_uses_no_session_for_longer(server):
    for _ in range(60):  # more than the server's capacity
        assert server.post("/reset", json={"data_idx": 1}).json()["done"] is False
    assert server.post("/reset").json()["done"] is False  # the body is optional


def test_pages_of_other_sites_and_clients_without_the_token_are_refused():
    with serving_openenv(DOOR, token="s3cret") as client:
        assert client.get("/metadata").status_code == 401
        right = {"Authorization": "Bearer s3cret"}
        assert client.get("/metadata", headers=right).status_code == 200
        for headers, status in (({}, 401), (right | {"Origin": "http://evil.example"}, 403)):
            with pytest.raises(InvalidStatus) as refused:
                connected(client, additional_headers=headers)
            assert refused.value.response.status_code == status
        with connected(client, additional_headers=right) as websocket:
            assert Session(websocket).reset(data_idx=0)["done"] is False


def test_the_option_compat_is_refused(capsys):
    assert main(["textcraft", "--protocol=openenv", "--compat", "--port=0"]) == 1
    assert "--compat is for AgentGym's protocol" in capsys.readouterr().err


@pytest.mark.slow
def test_openenvs_own_client_plays_an_episode():
    python = os.environ.get("AGENTGYM_OPENENV_PYTHON")
    if not python:
        pytest.skip("AGENTGYM_OPENENV_PYTHON names no Python that has the package openenv")
    module = ENVIRONMENTS["textcraft"].module
    environment = load_environment(module).factory()
    expected, actions = [environment.reset(3)], []
    while not expected[-1].done:
        actions.append(environment.expert_action())
        expected.append(environment.step(actions[-1]))
    script = str(pathlib.Path(__file__).with_name("openenv_client_check.py"))
    with serving_openenv(module) as client:
        command = [python, script, str(client.base_url), *actions]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["seen"] == [[r.observation, r.reward, r.done, r.done] for r in expected]
    assert found["state"]["step_count"] == len(actions)
