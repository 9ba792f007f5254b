"""The client, which parses each server answer to a checked observation or a typed error.

A malformed answer never yields a reward.
"""

import json
import re
import socket
import threading
import time

import pytest

from agentgym_envs.base.protocol import ErrorKind
from agentgym_jax.client.client import Observation
from agentgym_jax.client.errors import EnvCause
from tests.env_clients import connect, failure
from tests.waiting import PATIENCE_S


def test_a_whole_episode_is_played(server, world):
    client = connect(server.url)
    session = client.create()
    assert client.reset(session, 7) == Observation("task 7", 0.0, 0.0, False, False)
    assert client.step(session, "look") == Observation("task 7: look", 0.0, 0.0, False, False)
    assert client.step(session, "win") == Observation("task 7: look,win", 1.0, 1.0, True, True)
    client.close(session)
    assert world.sessions == {}


@pytest.mark.parametrize(
    ("reward", "score", "done", "success"),
    [(0.3, 0.3, True, True), (0.9, 0.9, True, True), (0.5, 2.5, False, False), (0, 0, True, False)],
)
def test_babyai_is_solved_when_it_ends_with_a_reward(server, world, reward, score, done, success):
    body = {"observation": "x", "reward": reward, "score": score, "done": done}
    world.faults["/step"] = [(200, body)]
    seen = connect(server.url, "babyai").step(0, "toggle")
    assert seen == Observation("x", reward, score, done, success)


@pytest.mark.parametrize(
    ("environment", "text", "is_rejection"),
    [
        ("babyai", "The action is not recognized. Please check valid actions.", True),
        ("babyai", "You cannot drop the object, as you are not carrying anything.", True),
        ("babyai", "You cannot see any objects within sight.", False),
        ("babyai", "No change in state.", False),
        ("textcraft", "Could not find enough items to craft minecraft:stick", True),
        ("textcraft", "Wrong item format: two planks", True),
        ("textcraft", "Got 2 oak log", False),
    ],
)
def test_rejections_are_distinguished_from_observations(
    server, world, environment, text, is_rejection
):
    body = {"observation": text, "reward": 0, "score": 0, "done": False}
    world.faults["/step"] = [(200, body)]
    assert connect(server.url, environment).step(0, "x").is_rejection == is_rejection


@pytest.mark.parametrize(
    ("environment", "text", "shows_state"),
    [
        ("babyai", "No change in state.\nAvailable actions: [turn left]", False),
        ("babyai", "You can take the following actions: turn left", False),
        ("babyai", "In front of you in this room, you can see a red ball 1", True),
        ("textcraft", "Got 2 oak log", True),
    ],
)
def test_an_observation_says_if_it_shows_a_state(server, world, environment, text, shows_state):
    body = {"observation": text, "reward": 0, "score": 0, "done": False}
    world.faults["/step"] = [(200, body)]
    assert connect(server.url, environment).step(0, "x").shows_state == shows_state


GOOD = {"observation": "x", "reward": 0, "done": False}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ((200, {"error": "list index out of range"}), EnvCause.ERROR_BODY),
        ((200, {"error": "The id 3 is not valid."}), EnvCause.SESSION_LOST),
        ((200, {**GOOD, "error": "late"}), EnvCause.ERROR_BODY),
        ((200, b"Internal Server Error"), EnvCause.BAD_BODY),
        ((200, b""), EnvCause.BAD_BODY),
        ((200, b"\xff\xfe"), EnvCause.BAD_BODY),
        ((200, b"[" * 100_000), EnvCause.BAD_BODY),
        ((200, [1]), EnvCause.BAD_BODY),
        ((200, {"observation": "x", "done": False}), EnvCause.BAD_BODY),
        ((200, {"reward": 0, "done": False}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "reward": None}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "reward": "1"}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "reward": True}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "reward": float("nan")}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "reward": float("-inf")}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "reward": 10**400}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "done": 0}), EnvCause.BAD_BODY),
        ((200, {**GOOD, "observation": None}), EnvCause.BAD_BODY),
        ((500, b"Internal Server Error"), EnvCause.HTTP_STATUS),
        ((503, b"busy"), EnvCause.CAPACITY),
    ],
)
def test_a_malformed_answer_to_a_step_is_an_error_without_a_reward(server, world, answer, cause):
    world.faults["/step"] = [answer]
    error = failure(connect(server.url).step, 0, "look")
    assert error.cause is cause
    assert f"{server.url}/step" in error.message
    assert error.retryable_from_reset


@pytest.mark.parametrize("number", [True, 1.0, "1", None])
def test_a_session_number_must_be_an_integer(server, world, number):
    world.faults["/create"] = [(200, {"id": number})]
    assert failure(connect(server.url).create).cause is EnvCause.BAD_BODY


@pytest.mark.parametrize(
    ("kind", "status", "cause", "retryable"),
    [
        (ErrorKind.UNKNOWN_SESSION, 404, EnvCause.SESSION_LOST, True),
        (ErrorKind.CAPACITY, 503, EnvCause.CAPACITY, True),
        (ErrorKind.BUSY, 503, EnvCause.CAPACITY, True),
        (ErrorKind.TIMEOUT, 504, EnvCause.TIMEOUT, True),
        (ErrorKind.SIMULATOR, 500, EnvCause.HTTP_STATUS, True),
        (ErrorKind.FINISHED, 409, EnvCause.HTTP_STATUS, True),
        (ErrorKind.UNKNOWN_TASK, 422, EnvCause.HTTP_STATUS, False),
        (ErrorKind.UNAUTHORIZED, 401, EnvCause.HTTP_STATUS, False),
        (ErrorKind.FORBIDDEN, 403, EnvCause.HTTP_STATUS, False),
    ],
)
def test_typed_errors_keep_their_kind(server, world, kind, status, cause, retryable):
    world.faults["/reset"] = [(status, {"error": "why", "type": kind})]
    error = failure(connect(server.url).reset, 0, 1)
    assert (error.kind, error.cause, error.retryable_from_reset) == (kind, cause, retryable)
    assert "why" in error.message


def test_an_error_of_unknown_type_is_classified_by_its_status(server, world):
    world.faults["/reset"] = [(422, {"error": "why", "type": ["odd"]})]
    error = failure(connect(server.url).reset, 0, 1)
    assert (error.kind, error.retryable_from_reset) == (None, False)


def test_a_slow_answer_is_a_timeout(server, world):
    world.faults["/step"] = [2 * PATIENCE_S]
    error = failure(connect(server.url, step_timeout_s=0.2).step, 0, "look")  # reached
    assert error.cause is EnvCause.TIMEOUT


def test_a_trickling_body_is_a_timeout_although_no_single_byte_is_late():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
                for _ in range(100):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return
                    time.sleep(0.1)

        threading.Thread(target=trickle, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = connect(url, connect_timeout_s=0.2, step_timeout_s=0.4)  # reached
        error = failure(client.step, 0, "look")
    assert error.cause is EnvCause.TIMEOUT


def test_a_dropped_reset_is_sent_again_but_a_dropped_step_is_not(server, world, drop):
    client = connect(server.url)
    session = client.create()
    world.faults = {"/reset": [drop], "/step": [drop]}
    assert client.reset(session, 3).text == "task 3"
    assert world.count("/reset") == 2
    assert failure(client.step, session, "look").cause is EnvCause.CONNECTION
    assert world.count("/step") == 1
    assert client.step(session, "win").text == "task 3: win"


def test_a_connection_that_the_server_closed_while_idle_does_not_fail_a_step(serve, world):
    with serve(world) as first:
        client = connect(first.url)
        session = client.create()
        client.reset(session, 0)
    with serve(world, first.server_address[1]):
        assert client.step(session, "look").text == "task 0: look"


def test_a_refused_connection_means_that_the_server_is_gone(free_port):
    error = failure(connect(f"http://127.0.0.1:{free_port}").create)
    assert error.cause is EnvCause.SERVER_GONE
    assert str(free_port) in error.message


def test_one_connection_serves_many_calls(server, world):
    client = connect(server.url)
    session = client.create()
    for data_idx in range(20):
        client.reset(session, data_idx)
    assert len(server.connections) == 1


def test_a_disconnected_client_connects_again(server):
    client = connect(server.url)
    client.create()
    client.disconnect()
    assert client.create() == 1
    assert len(server.connections) == 2


def test_the_token_is_sent_with_every_request(server):
    connect(server.url, token="secret").create()
    assert server.requests[0].headers["Authorization"] == "Bearer secret"


def test_the_table_provides_the_spec_of_a_server_without_one(server):
    spec = connect(server.url).spec()
    assert (spec.name, spec.version, spec.num_tasks) == ("textcraft", "upstream", 544)
    assert "Action:" in spec.instructions


SPEC = {
    "name": "textcraft",
    "version": "1",
    "instructions": "craft",
    "action_format": "react",
    "num_tasks": 5,
    "manifest_sha256": "ab",
    "max_turns": 30,
}


def test_unknown_fields_of_a_spec_are_ignored(server, world):
    world.faults["/spec"] = [(200, {**SPEC, "later": 1})]
    assert connect(server.url).spec().num_tasks == 5


def test_a_server_of_another_environment_is_refused(server, world):
    world.faults["/spec"] = [(200, SPEC)]
    error = failure(connect(server.url, "babyai").spec)
    assert "textcraft" in error.message
    assert not error.retryable_from_reset


def test_a_spec_with_a_missing_field_is_a_bad_body(server, world):
    world.faults["/spec"] = [(200, {k: v for k, v in SPEC.items() if k != "num_tasks"})]
    assert failure(connect(server.url).spec).cause is EnvCause.BAD_BODY


def test_without_a_manifest_every_index_is_a_task(server, world):
    assert connect(server.url).tasks()[543] == {"data_idx": 543}
    world.faults["/tasks"] = [(200, [{"data_idx": 0, "split": "test"}]), (200, [{}])]
    assert connect(server.url).tasks() == [{"data_idx": 0, "split": "test"}]
    assert failure(connect(server.url).tasks).cause is EnvCause.BAD_BODY


def test_a_server_without_a_health_route_is_alive_if_it_answers(server, world, free_port):
    assert connect(server.url).health() == {"root": None}
    world.faults["/"] = [(200, "This is environment TextCraft.")]
    assert connect(server.url).health() == {"root": "This is environment TextCraft."}
    dead = connect(f"http://127.0.0.1:{free_port}")
    assert failure(dead.health).cause is EnvCause.SERVER_GONE


def test_closing_a_missing_session_is_not_an_error(server):
    connect(server.url).close(12345)


def test_the_path_of_an_address_is_kept(server, world):
    world.faults["/games/create"] = [(200, {"id": 4})]
    assert connect(server.url + "/games/").create() == 4


@pytest.mark.parametrize("url", ["127.0.0.1:36001", "ftp://host", ""])
def test_an_invalid_address_is_refused_before_any_call(url):
    with pytest.raises(ValueError, match="server address"):
        connect(url)


def test_the_error_for_an_unknown_environment_lists_the_known_ones(server):
    client = connect(server.url, "chess")  # the client sends no request before the first call
    assert server.requests == []
    error = failure(client.create)
    assert re.search(r"'chess'.*babyai.*textcraft", error.message)
    assert not error.retryable_from_reset


def test_request_bodies_equal_those_of_agentgym(server, world):
    client = connect(server.url)
    # a lone surrogate also reaches the server, encoded as JSON
    client.step(client.create(), "é\ud800")
    assert world.calls[0] == ("/create", {})
    assert world.calls[1] == ("/step", {"id": 0, "action": json.loads('"\\u00e9\\ud800"')})
