"""Numbered requests: each is executed once, even if it arrives repeatedly or late."""

import concurrent.futures

import pytest

from agentgym_envs.base.protocol import REQUEST_ID_HEADER, ErrorKind
from tests.envs.base.test_server import assert_error
from tests.envs.serving import DOOR, serving


@pytest.fixture(scope="module")
def server():
    with serving(DOOR, capacity=500) as client:
        yield client


class Numbered:
    """A client session that sends a request id with each request."""

    def __init__(self, client, number=None):
        self.client = client
        self.id = client.post("/create").json()["id"] if number is None else number

    def ask(self, route, request_id, **body):
        headers = {REQUEST_ID_HEADER: request_id} if request_id else {}
        return self.client.post(route, json={"id": self.id, **body}, headers=headers)

    def reset(self, request_id, data_idx=0):
        return self.ask("/reset", request_id, data_idx=data_idx)

    def step(self, request_id):
        return self.ask("/step", request_id, action="dig")


@pytest.fixture
def session(server):
    return Numbered(server)


def test_a_repeated_step_is_executed_once(session):
    session.reset("a/0")
    first = session.step("a/1").json()
    assert session.step("a/1").json() == first
    assert session.step("a/2").json() != first


def test_simultaneous_copies_of_a_step_are_executed_once(session):
    session.reset("a/0")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        copies = list(threads.map(lambda _: session.step("a/1").json(), range(8)))
    assert all(copy == copies[0] for copy in copies)
    plain = Numbered(session.client)
    plain.reset("")
    assert copies[0] == plain.step("").json()


def test_a_repeated_reset_begins_one_episode(session):
    first = session.reset("a/0").json()
    assert session.reset("a/0").json() == first
    assert session.step("a/1").status_code == 200


@pytest.mark.parametrize("late", ["a/1", "a/0", "a/4"])
def test_a_request_out_of_order_is_refused_and_changes_nothing(session, late):
    session.reset("a/0")
    session.step("a/1")
    second = session.step("a/2").json()
    answer = session.reset(late) if late == "a/0" else session.step(late)
    assert_error(answer, ErrorKind.OUT_OF_TURN)
    assert session.step("a/2").json() == second
    assert session.step("a/3").status_code == 200


def test_a_step_of_an_earlier_episode_is_refused(session):
    for request_id in ("a/0", "b/0"):
        session.reset(request_id)
    assert_error(session.step("a/1"), ErrorKind.OUT_OF_TURN)
    assert session.step("b/1").status_code == 200


def test_a_late_reset_of_an_earlier_episode_invalidates_the_current_one(session):
    for request_id in ("a/0", "b/0", "a/0"):
        session.reset(request_id)
    assert_error(session.step("b/1"), ErrorKind.OUT_OF_TURN)


def test_every_step_without_a_request_id_is_executed(session):
    session.reset("")
    assert session.step("").json() != session.step("").json()


def test_a_step_by_another_client_is_detected(session):
    session.reset("a/0")
    session.step("")
    assert_error(session.step("a/1"), ErrorKind.OUT_OF_TURN)


@pytest.mark.parametrize("value", ["a", "a/x", "/1", "a/1/1", "ä/1"])
def test_a_malformed_request_id_is_an_invalid_request(session, value):
    assert_error(session.reset(value.encode()), ErrorKind.INVALID_REQUEST)


def create(client, request_id):
    return client.post("/create", headers={REQUEST_ID_HEADER: request_id} if request_id else {})


def open_sessions(client):
    return client.get("/health").json()["sessions"]


def test_a_repeated_create_with_a_request_id_opens_one_session(server):
    before = open_sessions(server)
    first = create(server, "one/0").json()
    played = Numbered(server, first["id"])
    assert played.reset("a/0").status_code == 200
    assert create(server, "one/0").json() == first
    assert create(server, "two/0").json() != first
    assert open_sessions(server) == before + 2
    assert played.step("a/1").status_code == 200


def test_simultaneous_copies_of_a_create_open_one_session(server):
    before = open_sessions(server)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        copies = list(threads.map(lambda _: create(server, "same/0").json(), range(8)))
    assert all(copy == copies[0] for copy in copies)
    assert open_sessions(server) == before + 1


def test_the_request_id_of_a_closed_session_can_be_used_again(server):
    first = create(server, "again/0").json()
    server.post("/close", json={"id": first["id"]})
    assert create(server, "again/0").json() != first


def test_every_create_without_a_request_id_opens_a_session(server):
    assert create(server, "").json() != create(server, "").json()


def test_a_failed_create_can_be_repeated():
    with serving(DOOR, capacity=1) as client:
        other = create(client, "").json()
        assert_error(create(client, "wanted/0"), ErrorKind.CAPACITY)
        client.post("/close", json={"id": other["id"]})
        assert create(client, "wanted/0").status_code == 200


def test_a_malformed_id_of_a_create_is_an_invalid_request(server):
    assert_error(create(server, "wanted"), ErrorKind.INVALID_REQUEST)
