"""The HTTP server: routes, answers, errors and limits, asked as clients ask."""

import concurrent.futures
import dataclasses
import json
import threading
import time

import pytest
from fastapi.testclient import TestClient

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.kind import Answers, EnvironmentKind, ExtraRoute, IdBody, ResetBody
from agentgym_envs.base.protocol import STATUS, EnvironmentSpec, ErrorKind
from agentgym_envs.base.server import MAX_ACTION_CHARACTERS, create_app


class Door(Environment):
    """Opens on `open`; `crash` breaks the simulator; `wait` takes a while."""

    def __init__(self):
        self.inside = threading.Lock()

    def reset(self, data_idx):
        self.data_idx = data_idx
        return StepResult(f"door {data_idx} is shut", 0, 0, False)

    def step(self, action):
        if action == "crash":
            raise RuntimeError("hinge broke")
        assert self.inside.acquire(blocking=False), "two threads in one environment"
        try:
            time.sleep(0.2 if action == "wait" else 0)
        finally:
            self.inside.release()
        opened = int(action == "open")
        return StepResult(f"you did: {action}", opened, opened, bool(opened))

    def expert_action(self):
        return "open"

    def valid_actions(self):
        return ["open", "wait"]

    def state(self):
        return {"door": self.data_idx}


SPEC = EnvironmentSpec("door", "1", "Open the door.", "react", 3, "0" * 64, 5)
KIND = EnvironmentKind(
    spec=SPEC,
    banner="a door",
    factory=Door,
    compat_factory=Door,
    tasks=lambda: [{"data_idx": i, "split": "train"} for i in range(3)],
    answers=Answers(
        create=lambda session_id, first: {"id": session_id},
        reset=lambda session_id, first: {"observation": first.observation},
        step=dataclasses.asdict,
        observation=lambda door, last: "unseen" if last is None else last.observation,
    ),
    create_body=None,
    reset_body=ResetBody,
    resets_on_create=False,
    compat_refused_when_done=frozenset({"step", "observation"}),
    extra_routes=(
        ExtraRoute("/color", "GET", lambda door: "red"),
        ExtraRoute("/paint", "POST", lambda door: {"painted": door.data_idx}),
    ),
)


def serve(compat=False, **changes):
    options = {
        "capacity": 8,
        "idle_seconds": 60.0,
        "max_body_bytes": 4096,
        "step_timeout_s": 5.0,
        "token": None,
        **changes,
    }
    app = create_app(KIND, compat=compat, **options)
    return TestClient(app, raise_server_exceptions=False)


@pytest.fixture
def server():
    with serve() as client:
        yield client


@pytest.fixture
def compat_server():
    with serve(compat=True) as client:
        yield client


def started(client, data_idx=0) -> int:
    session_id = client.post("/create").json()["id"]
    client.post("/reset", json={"id": session_id, "data_idx": data_idx})
    return session_id


def assert_error(answer, kind):
    assert answer.status_code == STATUS[kind], answer.text
    assert answer.json()["type"] == kind
    assert set(answer.json()) == {"error", "type"}


def test_a_whole_episode(server):
    assert server.get("/").json() == "a door"
    assert server.post("/create", json={"junk": 1}).json() == {"id": 0}
    assert server.get("/observation", params={"id": 0}).json() == "unseen"
    reset = server.post("/reset", json={"id": "0", "data_idx": 2, "more": 1})
    assert reset.json() == {"observation": "door 2 is shut"}
    assert server.get("/expert_action", params={"id": 0}).json() == {"action": "open"}
    assert server.get("/valid_actions", params={"id": 0}).json() == {"actions": ["open", "wait"]}
    assert server.get("/state", params={"id": 0}).json() == {"door": 2}
    step = server.post("/step", json={"id": 0, "action": "open"})
    assert step.json() == {"observation": "you did: open", "reward": 1, "score": 1, "done": True}
    assert server.get("/observation", params={"id": 0}).json() == "you did: open"
    assert server.post("/close", json={"id": 0}).json() is True
    assert server.post("/close", json={"id": 0}).json() is False


def test_the_server_tells_about_itself(server):
    assert server.get("/spec").json() == dataclasses.asdict(SPEC)
    assert [task["data_idx"] for task in server.get("/tasks").json()] == [0, 1, 2]
    started(server)
    health = server.get("/health").json()
    assert (health["status"], health["sessions"], health["capacity"]) == ("ok", 1, 8)
    assert health["uptime_s"] >= 0


def test_extra_routes_are_served_for_sessions_that_were_reset(server):
    session_id = started(server, data_idx=1)
    assert server.get("/color", params={"id": session_id}).json() == "red"
    assert server.post("/paint", json={"id": session_id}).json() == {"painted": 1}
    fresh = server.post("/create").json()["id"]
    assert_error(server.get("/color", params={"id": fresh}), ErrorKind.NOT_RESET)


def test_a_route_that_the_environment_lacks_is_not_found(server):
    assert server.get("/detail", params={"id": 0}).status_code == 404
    assert server.get("/step").status_code == 405


@pytest.mark.parametrize("session_id", [7, -1, 10**30])
def test_an_unknown_id_is_a_typed_error_on_every_route(server, session_id):
    for path in ("/observation", "/expert_action", "/valid_actions", "/state", "/color"):
        assert_error(server.get(path, params={"id": session_id}), ErrorKind.UNKNOWN_SESSION)
    for path, more in (("/reset", {"data_idx": 0}), ("/step", {"action": "x"}), ("/paint", {})):
        assert_error(server.post(path, json={"id": session_id, **more}), ErrorKind.UNKNOWN_SESSION)


def test_a_step_needs_a_reset_and_an_episode_that_goes_on(server):
    session_id = server.post("/create").json()["id"]
    step = {"id": session_id, "action": "open"}
    assert_error(server.post("/step", json=step), ErrorKind.NOT_RESET)
    server.post("/reset", json={"id": session_id, "data_idx": 0})
    assert server.post("/step", json=step).json()["done"] is True
    assert_error(server.post("/step", json=step), ErrorKind.FINISHED)
    assert_error(server.get("/expert_action", params={"id": session_id}), ErrorKind.FINISHED)
    server.post("/reset", json={"id": session_id, "data_idx": 0})
    assert server.post("/step", json=step).status_code == 200


@pytest.mark.parametrize("data_idx", [-1, 3, 10**30])
def test_a_task_outside_the_manifest_is_unknown(server, data_idx):
    answer = server.post("/reset", json={"id": started(server), "data_idx": data_idx})
    assert_error(answer, ErrorKind.UNKNOWN_TASK)


def test_a_broken_simulator_is_reported_and_its_session_is_gone(server):
    session_id = started(server)
    answer = server.post("/step", json={"id": session_id, "action": "crash"})
    assert_error(answer, ErrorKind.SIMULATOR)
    assert "hinge broke" in answer.json()["error"]
    step = {"id": session_id, "action": "open"}
    assert_error(server.post("/step", json=step), ErrorKind.UNKNOWN_SESSION)
    assert server.get("/health").json()["sessions"] == 0


def test_sessions_are_limited():
    with serve(capacity=2) as client:
        first, _ = started(client), started(client)
        assert_error(client.post("/create"), ErrorKind.CAPACITY)
        client.post("/close", json={"id": first})
        assert client.post("/create").status_code == 200


def test_a_busy_session_is_busy_and_other_sessions_are_not():
    with serve(step_timeout_s=0.02) as client, concurrent.futures.ThreadPoolExecutor() as pool:
        slow, other = started(client), started(client)
        waiting = pool.submit(client.post, "/step", json={"id": slow, "action": "wait"})
        time.sleep(0.08)
        assert_error(client.post("/step", json={"id": slow, "action": "x"}), ErrorKind.BUSY)
        assert client.post("/step", json={"id": other, "action": "x"}).status_code == 200
        assert waiting.result().status_code == 200


def test_steps_on_one_session_are_serialised(server):
    session_id = started(server)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [
            pool.submit(server.post, "/step", json={"id": session_id, "action": str(i)})
            for i in range(40)
        ]
        # The door fails with SIMULATOR if two threads are in its step at once.
        assert {answer.result().status_code for answer in answers} == {200}


def test_idle_sessions_expire_by_themselves():
    with serve(idle_seconds=0.08) as client:
        session_id = started(client)
        deadline = time.monotonic() + 10
        while client.get("/health").json()["sessions"] and time.monotonic() < deadline:
            time.sleep(0.02)
        answer = client.get("/observation", params={"id": session_id})
        assert_error(answer, ErrorKind.UNKNOWN_SESSION)


BAD_BODIES = {
    "nothing": b"",
    "no JSON": b"id=0",
    "not UTF-8": b'{"id": 0, "action": "\xff"}',
    "a list": b"[]",
    "no id": b'{"action": "x"}',
    "no action": b'{"id": 0}',
    "id of words": b'{"id": "x", "action": "x"}',
    "id is null": b'{"id": null, "action": "x"}',
    "id is NaN": b'{"id": NaN, "action": "x"}',
    "id is infinite": b'{"id": 1e999, "action": "x"}',
    "id is half": b'{"id": 0.5, "action": "x"}',
    "id of 3000 digits": b'{"id": ' + b"9" * 3000 + b', "action": "x"}',
    "action is a number": b'{"id": 0, "action": 5}',
    "deep nesting": b'{"id": ' + b"[" * 2000 + b"]" * 2000 + b"}",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_bad_body_is_the_senders_fault_and_harms_nothing(server, body):
    session_id = started(server)
    answer = server.post("/step", content=body, headers={"content-type": "application/json"})
    if answer.status_code != 404:  # a huge integer is a fine number of no session
        assert_error(answer, ErrorKind.INVALID_REQUEST)
    assert server.post("/step", json={"id": session_id, "action": "x"}).status_code == 200


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_bad_body_is_not_a_server_error_in_compat_mode_either(compat_server, body):
    answer = compat_server.post("/step", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 422)
    json.loads(answer.content.decode("utf-8"))


def test_text_outside_the_latin_alphabet_comes_back_unharmed(server):
    action = "öffne 門 🚪"
    answer = server.post("/step", json={"id": started(server), "action": action})
    assert answer.json()["observation"] == f"you did: {action}"


def test_half_a_surrogate_pair_comes_back_as_its_escape(server):
    body = b'{"id": %d, "action": "\\ud800"}' % started(server)
    answer = server.post("/step", content=body, headers={"content-type": "application/json"})
    assert json.loads(answer.content.decode("utf-8"))["observation"] == "you did: \ud800"


@pytest.mark.parametrize("session_id", ["x", "NaN", "", None])
def test_a_bad_query_is_invalid(server, session_id):
    answer = server.get("/observation", params={} if session_id is None else {"id": session_id})
    assert_error(answer, ErrorKind.INVALID_REQUEST)


def test_a_long_action_is_refused():
    with serve(max_body_bytes=10**6) as client:
        step = {"id": started(client), "action": "x" * (MAX_ACTION_CHARACTERS + 1)}
        assert_error(client.post("/step", json=step), ErrorKind.INVALID_REQUEST)


def test_a_huge_body_is_refused_with_and_without_a_declared_length(server):
    body = json.dumps({"id": 0, "action": "x" * 5000}).encode()
    assert_error(server.post("/step", content=body), ErrorKind.TOO_LARGE)
    halves = iter([body[:2000], body[2000:]])  # sent in chunks
    assert_error(server.post("/step", content=halves), ErrorKind.TOO_LARGE)


def test_a_body_in_chunks_below_the_limit_is_read(server):
    body = json.dumps({"id": started(server), "action": "x"}).encode()
    answer = server.post(
        "/step", content=iter([body[:5], body[5:]]), headers={"content-type": "application/json"}
    )
    assert answer.json()["observation"] == "you did: x"


def test_a_token_is_asked_for_on_every_route():
    with serve(token="s3cret") as client:
        for headers in ({}, {"authorization": "Bearer s3cre"}, {"authorization": "s3cret"}):
            assert_error(client.get("/spec", headers=headers), ErrorKind.UNAUTHORIZED)
            assert_error(client.post("/create", headers=headers), ErrorKind.UNAUTHORIZED)
        right = {"authorization": "Bearer s3cret"}
        assert client.post("/create", headers=right).json() == {"id": 0}


def test_compat_answers_errors_with_status_200_and_agentgyms_texts(compat_server):
    unknown = compat_server.post("/step", json={"id": 9, "action": "x"})
    assert (unknown.status_code, unknown.json()) == (200, {"error": "The id 9 is not valid."})
    session_id = started(compat_server)
    compat_server.post("/step", json={"id": session_id, "action": "open"})
    finished = {"error": f"The task with environment {session_id} has finished."}
    step = compat_server.post("/step", json={"id": session_id, "action": "open"})
    assert (step.status_code, step.json()) == (200, finished)
    assert compat_server.get("/observation", params={"id": session_id}).json() == finished


def test_compat_answers_invalid_bodies_in_fastapis_form(compat_server):
    answer = compat_server.post("/step", json={"id": "x", "action": "y"})
    assert answer.status_code == 422
    (problem,) = answer.json()["detail"]
    assert set(problem) == {"type", "loc", "msg", "input"}
    assert (problem["type"], problem["loc"]) == ("int_parsing", ["body", "id"])


def test_an_extra_route_with_another_method_is_refused():
    kind = dataclasses.replace(KIND, extra_routes=(ExtraRoute("/x", "PUT", lambda door: 1),))
    with pytest.raises(ValueError, match="GET or POST"):
        create_app(
            kind, compat=False, capacity=1, idle_seconds=1, max_body_bytes=1, step_timeout_s=1
        )


def test_a_create_body_is_asked_for_where_the_environment_wants_one():
    kind = dataclasses.replace(KIND, create_body=IdBody)
    app = create_app(
        kind, compat=False, capacity=1, idle_seconds=1, max_body_bytes=99, step_timeout_s=1
    )
    with TestClient(app) as client:
        assert_error(client.post("/create"), ErrorKind.INVALID_REQUEST)
        assert client.post("/create", json={"id": 5}).json() == {"id": 0}
