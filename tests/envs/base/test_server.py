"""The HTTP server: routes, answers, errors and limits, tested over HTTP."""

import concurrent.futures
import itertools
import json
import socket
import time

import pytest

from agentgym_envs.base.host import MAX_ACTION_CHARACTERS
from agentgym_envs.base.protocol import STATUS, ErrorKind
from tests.envs.base.door import SPEC
from tests.envs.serving import DOOR, serving
from tests.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def server():
    with serving(DOOR, capacity=500) as client:
        yield client


@pytest.fixture(scope="module")
def compat_server():
    with serving(DOOR, compat=True, capacity=500) as client:
        yield client


def started(client, data_idx=0) -> int:
    session_id = client.post("/create").json()["id"]
    client.post("/reset", json={"id": session_id, "data_idx": data_idx})
    return session_id


def assert_error(answer, kind):
    assert answer.status_code == STATUS[kind], answer.text
    assert answer.json()["type"] == kind
    assert set(answer.json()) == {"error", "type"}


def test_a_whole_episode_is_played_over_http(server):
    assert server.get("/").json() == "a door"
    created = server.post("/create", json={"junk": 1}).json()
    number = created["id"]
    assert server.get("/observation", params=created).json() == "unseen"
    reset = server.post("/reset", json={"id": str(number), "data_idx": 2, "more": 1})
    assert reset.json() == {"observation": "door 2 is shut"}
    assert server.get("/expert_action", params=created).json() == {"action": "open"}
    assert server.get("/valid_actions", params=created).json() == {"actions": ["open", "knock"]}
    assert server.get("/state", params=created).json()["door"] == 2
    step = server.post("/step", json={**created, "action": "open"})
    assert step.json() == {"observation": "1: you did open", "reward": 1, "score": 1, "done": True}
    assert server.get("/observation", params=created).json() == "1: you did open"
    assert server.post("/close", json=created).json() is True
    assert server.post("/close", json=created).json() is False


def test_spec_tasks_and_health_describe_the_server(server):
    assert server.get("/spec").json() == SPEC.to_json()
    assert [task["data_idx"] for task in server.get("/tasks").json()] == [0, 1, 2]
    before = server.get("/health").json()["sessions"]
    started(server)
    health = server.get("/health").json()
    assert (health["status"], health["sessions"]) == ("ok", before + 1)
    assert (health["capacity"], health["workers"], health["worker_restarts"]) == (500, 1, 0)
    assert health["uptime_s"] >= 0


def test_extra_routes_are_served_after_a_reset(server):
    session_id = started(server, data_idx=1)
    assert server.get("/color", params={"id": session_id}).json() == "red"
    assert server.post("/paint", json={"id": session_id}).json() == {"painted": 1}
    fresh = server.post("/create").json()["id"]
    assert_error(server.get("/color", params={"id": fresh}), ErrorKind.NOT_RESET)


def test_a_route_that_the_environment_lacks_is_not_found(server):
    assert server.get("/detail", params={"id": 0}).status_code == 404
    assert server.get("/step").status_code == 405


@pytest.mark.parametrize("session_id", [7000, -1, 10**30])
def test_an_unknown_id_is_a_typed_error_on_every_route(server, session_id):
    for path in ("/observation", "/expert_action", "/valid_actions", "/state", "/color"):
        assert_error(server.get(path, params={"id": session_id}), ErrorKind.UNKNOWN_SESSION)
    for path, more in (("/reset", {"data_idx": 0}), ("/step", {"action": "x"}), ("/paint", {})):
        assert_error(server.post(path, json={"id": session_id, **more}), ErrorKind.UNKNOWN_SESSION)


def test_a_step_needs_a_reset_and_a_running_episode(server):
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


def test_an_extra_step_route_takes_a_step_and_has_its_own_answer_format(server):
    session_id = started(server)
    answer = server.post("/shout", json={"id": session_id, "action": "KNOCK"})
    assert answer.json() == {"heard": "1: YOU DID KNOCK"}
    step = server.post("/step", json={"id": session_id, "action": "x"})
    assert step.json()["observation"] == "2: you did x"


def test_sessions_are_limited():
    with serving(DOOR, capacity=2) as client:
        first, _ = started(client), started(client)
        assert_error(client.post("/create"), ErrorKind.CAPACITY)
        client.post("/close", json={"id": first})
        assert client.post("/create").status_code == 200


def test_steps_on_one_session_are_serialised(server):
    session_id = started(server)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [
            pool.submit(server.post, "/step", json={"id": session_id, "action": "sleep 0.001"})
            for _ in range(40)
        ]
        seen = {answer.result().json()["observation"].partition(":")[0] for answer in answers}
    assert seen == {str(i + 1) for i in range(40)}


def test_idle_sessions_expire_without_a_request():
    with serving(DOOR, idle_seconds=0.3) as client:
        session_id = client.post("/create").json()["id"]
        until(lambda: not client.get("/health").json()["sessions"])
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
def test_an_invalid_body_is_a_client_error_and_changes_nothing(server, body):
    session_id = started(server)
    answer = server.post("/step", content=body, headers={"content-type": "application/json"})
    if answer.status_code != 404:  # a huge integer is a valid session number, but no session has it
        assert_error(answer, ErrorKind.INVALID_REQUEST)
    assert server.post("/step", json={"id": session_id, "action": "x"}).status_code == 200


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_an_invalid_body_is_no_server_error_in_compat_mode(compat_server, body):
    answer = compat_server.post("/step", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 422)
    json.loads(answer.content.decode("utf-8"))


def test_non_ascii_text_is_preserved(server):
    action = "öffne 門 🚪"
    answer = server.post("/step", json={"id": started(server), "action": action})
    assert answer.json()["observation"] == f"1: you did {action}"


def test_a_lone_surrogate_is_replaced_in_the_answer(server):
    body = b'{"id": %d, "action": "\\ud800"}' % started(server)
    answer = server.post("/step", content=body, headers={"content-type": "application/json"})
    assert json.loads(answer.content.decode("utf-8"))["observation"] == "1: you did \ufffd"


@pytest.mark.parametrize("session_id", ["x", "NaN", "", None])
def test_an_invalid_query_is_refused(server, session_id):
    answer = server.get("/observation", params={} if session_id is None else {"id": session_id})
    assert_error(answer, ErrorKind.INVALID_REQUEST)


def test_a_long_action_is_refused():
    with serving(DOOR, max_body_bytes=10**6) as client:
        step = {"id": started(client), "action": "x" * (MAX_ACTION_CHARACTERS + 1)}
        assert_error(client.post("/step", json=step), ErrorKind.INVALID_REQUEST)


def test_a_huge_body_is_refused_with_or_without_a_declared_length(server):
    body = json.dumps({"id": 0, "action": "x" * 5000}).encode()
    assert_error(server.post("/step", content=body), ErrorKind.TOO_LARGE)
    halves = iter([body[:2000], body[2000:]])  # the body is sent in two chunks
    assert_error(server.post("/step", content=halves), ErrorKind.TOO_LARGE)


def test_a_chunked_body_below_the_limit_is_accepted(server):
    body = json.dumps({"id": started(server), "action": "x"}).encode()
    answer = server.post(
        "/step", content=iter([body[:5], body[5:]]), headers={"content-type": "application/json"}
    )
    assert answer.json()["observation"] == "1: you did x"


def test_every_route_requires_the_token():
    with serving(DOOR, token="s3cret") as client:
        for headers in ({}, {"authorization": "Bearer s3cre"}, {"authorization": "Basic s3cret"}):
            assert_error(client.get("/spec", headers=headers), ErrorKind.UNAUTHORIZED)
            assert_error(client.post("/create", headers=headers), ErrorKind.UNAUTHORIZED)
        for number, scheme in enumerate(("Bearer", "bearer", "BEARER")):
            right = {"authorization": f"{scheme} s3cret"}
            assert client.post("/create", headers=right).json() == {"id": number}


def test_errors_in_compat_mode_have_status_200_and_agentgyms_texts(compat_server):
    unknown = compat_server.post("/step", json={"id": 9999, "action": "x"})
    assert (unknown.status_code, unknown.json()) == (200, {"error": "The id 9999 is not valid."})
    session_id = compat_server.post("/create").json()["id"]
    early = compat_server.post("/step", json={"id": session_id, "action": "x"})
    assert (early.status_code, early.json()) == (200, {"error": "no door yet"})
    compat_server.post("/reset", json={"id": session_id, "data_idx": 0})
    compat_server.post("/step", json={"id": session_id, "action": "open"})
    finished = {"error": f"The task with environment {session_id} has finished."}
    step = compat_server.post("/step", json={"id": session_id, "action": "open"})
    assert (step.status_code, step.json()) == (200, finished)
    assert compat_server.get("/observation", params={"id": session_id}).json() == finished


def test_errors_for_invalid_bodies_in_compat_mode_have_fastapis_format(compat_server):
    answer = compat_server.post("/step", json={"id": "x", "action": "y"})
    assert answer.status_code == 422
    (problem,) = answer.json()["detail"]
    assert set(problem) == {"type", "loc", "msg", "input"}
    assert (problem["type"], problem["loc"]) == ("int_parsing", ["body", "id"])


def test_compat_mode_distinguishes_closed_sessions_from_unknown_ones(compat_server):
    session_id = started(compat_server)
    compat_server.post("/close", json={"id": session_id})
    answer = compat_server.post("/step", json={"id": session_id, "action": "x"})
    assert answer.json() == {"error": f"door {session_id} was torn down"}


def test_path_prefix_task_field_and_create_body_can_be_set():
    with serving("tests.envs.base.cellar") as client:
        assert client.get("/cellar/").json() == "a door"
        assert client.get("/spec").json() == client.get("/cellar/spec").json()
        assert_error(client.post("/cellar/create"), ErrorKind.INVALID_REQUEST)
        assert client.post("/cellar/create", json={"id": 5}).json() == {"id": 0}
        assert client.post("/create", json={"id": 5}).status_code == 404
        reset = client.post("/cellar/reset", json={"id": 0, "game": 1})
        assert reset.json() == {"observation": "door 1 is shut"}
        bad = client.post("/cellar/reset", json={"id": 0, "data_idx": 1})
        assert_error(bad, ErrorKind.INVALID_REQUEST)
        assert "game" in bad.json()["error"]


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"content-type": ""}])
def test_a_body_without_the_json_content_type_is_refused(server, headers):
    # A web page can send requests with these content types without a CORS preflight.
    body = json.dumps({"id": started(server), "action": "open"})
    answer = server.post("/step", content=body, headers=headers)
    assert_error(answer, ErrorKind.INVALID_REQUEST)
    assert "expected application/json" in answer.json()["error"]


def talk(server, *pieces):
    """Sends the pieces; returns the reply, which ends when the server closes the connection."""
    with socket.create_connection((server.base_url.host, server.base_url.port)) as connection:
        connection.settimeout(PATIENCE_S)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.02)
        heard = b""
        while more := connection.recv(65536):
            heard += more
        return heard


def test_pipelined_requests_are_answered_in_order(server):
    session_id = started(server)
    body = b'{"id": %d, "action": "sleep 0.05"}' % session_id
    head = b"POST /step HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    step = head % len(body) + body
    heard = talk(server, step + step + b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert heard.index(b"1: you did") < heard.index(b"2: you did") < heard.index(b"a door")
    assert heard.count(b"HTTP/1.1 200 OK") == 3


def test_a_request_sent_in_small_pieces_is_accepted(server):
    request = b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n"
    heard = talk(server, *(request[i : i + 7] for i in range(0, len(request), 7)))
    assert b'"status":"ok"' in heard


def test_a_client_that_expects_100_continue_gets_it_before_its_body(server):
    body = b'{"id": %d}' % started(server)
    head = b"POST /close HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\n"
    head += b"content-type: application/json\r\n"
    heard = talk(server, head + b"content-length: %d\r\n\r\n" % len(body), body)
    assert heard.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert heard.endswith(b"true")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 422),  # a TLS client hello
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000, 413),
        (b"GET /%ff%00 HTTP/1.1\r\nconnection: close\r\n\r\n", 404),
        (b"HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", 200),
        (b"POST /step HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n", 413),
    ],
)
def test_malformed_requests_are_answered_and_disconnected(server, request_bytes, status):
    heard = talk(server, request_bytes)
    assert heard.startswith(b"HTTP/1.1 %d " % status), heard
    assert server.get("/health").status_code == 200


def test_a_client_that_disconnects_early_does_not_affect_others(server):
    session_id = started(server)
    body = b'{"id": %d, "action": "sleep 0.2"}' % session_id
    with socket.create_connection((server.base_url.host, server.base_url.port)) as connection:
        head = b"POST /step HTTP/1.1\r\ncontent-type: application/json\r\n"
        connection.sendall(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        time.sleep(0.05)
    own = itertools.count(1)

    def is_one_more():
        step = server.post("/step", json={"id": session_id, "action": "x"})
        return step.json()["observation"] == f"{next(own) + 1}: you did x"

    until(is_one_more)  # the first step was executed although its client had given up
