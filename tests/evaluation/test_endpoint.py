"""A chat endpoint as agent, tested against a small fake server."""

import contextlib
import json
import threading
import time

import pytest

from agentgym_jax.client.chat_endpoint import CHAT
from agentgym_jax.episodes.trajectory import Outcome, to_record
from agentgym_jax.evaluation.text_agents import (
    AgentError,
    AgentStopped,
    EndpointAgent,
    EndpointSettings,
    check_address,
)
from tests.evaluation.playing_parts import ALL_TASKS, maze, play
from tests.fake_server import DROP, serving
from tests.waiting import PATIENCE_S

KEY = "sk-very-secret"


def never():
    return False


class Endpoint:
    """A fake endpoint that answers with the next entry of `faults`, or with `Action: move left`."""

    def __init__(self):
        self.hold = threading.Event()  # while this event is not set, requests wait
        self.hold.set()
        self.faults = []
        self.models = ["tiny"]
        self.text = "Action: move left"
        self.finish_reason = "stop"

    def answer(self, request):
        self.hold.wait()
        if self.faults:
            return self.faults.pop(0)
        if request.path == "/v1/models":
            return 200, {"data": [{"id": name} for name in self.models]}
        if request.path != "/v1/chat/completions":
            return 404, {"error": {"message": "no such route"}}
        message = {"role": "assistant", "content": self.text}
        return 200, {"choices": [{"message": message, "finish_reason": self.finish_reason}]}


@pytest.fixture
def fake():
    endpoint = Endpoint()
    with serving(endpoint.answer) as server:
        endpoint.url, endpoint.requests = server.url, server.requests
        yield endpoint
        endpoint.hold.set()


def settings(**changes):
    default = dict(
        model="",
        key_variable="TEST_ENDPOINT_KEY",
        workers=3,
        connect_timeout_s=PATIENCE_S,
        timeout_s=60.0,
        patience_s=PATIENCE_S,
        send_seed=True,
        max_tokens_field="max_tokens",
    )
    return EndpointSettings(**default | changes)


@contextlib.contextmanager
def playing(fake, **changes):
    with maze(None, EndpointAgent(fake.url, settings(**changes), never)) as collector:
        yield collector


def chats(fake):
    return [r.json() for r in fake.requests if r.path == "/v1/chat/completions"]


def test_every_turn_is_one_request_with_the_conversation_so_far(fake, monkeypatch):
    monkeypatch.setenv("TEST_ENDPOINT_KEY", KEY)
    with playing(fake) as collector:
        result = play(collector, ALL_TASKS[:2], samples=2, max_turns=2)
    assert {e.outcome for e in result.sampled} == {Outcome.HORIZON}
    first, *_, last = sorted(chats(fake), key=lambda body: len(body["messages"]))
    assert first["model"] == "tiny" and first["max_tokens"] == 50
    assert first["temperature"] == first["top_p"] == 1.0
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    assert [m["role"] for m in last["messages"]] == ["system", "user", "assistant", "user"]
    assert len(chats(fake)) == 8 and len({body["seed"] for body in chats(fake)}) == 8
    assert all(r.headers["Authorization"] == f"Bearer {KEY}" for r in fake.requests)
    records = json.dumps([to_record(t) for t in result.trajectories])
    assert KEY not in records and "move left" in records


def test_a_key_that_is_an_ordinary_word_changes_no_answer(fake, monkeypatch):
    """Checks a key that is a common word, such as `none` for a local server."""
    monkeypatch.setenv("TEST_ENDPOINT_KEY", "move")
    with playing(fake, model="tiny") as collector:
        result = play(collector, ALL_TASKS[:1], max_turns=1)
    assert result.trajectories[0].turns[0].action == "move left"


def test_the_seed_of_a_turn_depends_only_on_its_episode(fake):
    with playing(fake) as collector:
        play(collector, ALL_TASKS[:2], max_turns=2)
        together = {body["seed"] for body in chats(fake)}
        fake.requests.clear()
        play(collector, ALL_TASKS[1:2], max_turns=2)
        assert {body["seed"] for body in chats(fake)} < together


def test_key_and_seed_are_optional(fake, monkeypatch):
    monkeypatch.delenv("TEST_ENDPOINT_KEY", raising=False)
    with playing(fake, send_seed=False, max_tokens_field="max_completion_tokens") as collector:
        play(collector, ALL_TASKS[:1], max_turns=1)
    assert all("Authorization" not in r.headers for r in fake.requests)
    assert "seed" not in chats(fake)[0] and chats(fake)[0]["max_completion_tokens"] == 50


@pytest.mark.slow
def test_a_busy_endpoint_is_asked_again(fake):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(429, {"error": "slow down"}), (503, b"busy"), DROP]
        result = play(collector, ALL_TASKS[:1], max_turns=1)
    assert result.sampled[0].outcome is Outcome.HORIZON
    assert len(chats(fake)) == 4


def test_a_closed_agent_sends_no_further_requests(fake):
    agent = EndpointAgent(fake.url, settings(model="tiny", patience_s=60.0), never)
    fake.faults = [(503, b"busy")] * 50
    ended = []

    def ask():
        with pytest.raises(AgentError, match="stopping"):
            agent._retry(CHAT, lambda: agent._endpoint.complete({}))
        ended.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    while not fake.requests:
        time.sleep(0.01)
    agent.close()
    thread.join(PATIENCE_S)
    assert ended


def test_a_rollout_after_a_stop_retries_requests_again(fake):
    """Checks that an agent whose rows were stopped, which ends retries, can be used again."""
    with playing(fake, model="tiny") as collector:
        collector.rows.stop()
        fake.faults = [(503, b"busy")]
        result = play(collector, ALL_TASKS[:1], max_turns=1)
    assert result.sampled[0].outcome is Outcome.HORIZON
    assert len(chats(fake)) == 2


def test_a_stop_ends_the_wait_for_a_silent_endpoint(fake):
    """Checks that a stop waits neither for `patience_s` nor for the request timeout."""
    fake.hold.clear()
    with pytest.raises(AgentStopped, match="stopped while"):
        EndpointAgent(fake.url, settings(timeout_s=1e6), lambda: bool(fake.requests))


def test_a_stop_ends_the_wait_for_a_busy_endpoint(fake):
    fake.faults = [(503, b"busy")] * 50
    with pytest.raises(AgentStopped, match="stopped while"):
        EndpointAgent(fake.url, settings(patience_s=1e6), lambda: bool(fake.requests))


def test_an_endpoint_that_keeps_failing_ends_the_evaluation_with_an_error(fake):
    with playing(fake, model="tiny", patience_s=0.1) as collector:  # reached
        fake.faults = [(500, b"broken")] * 50
        with pytest.raises(AgentError, match=r"failed 1 times.*status 500: broken"):
            play(collector, ALL_TASKS[:1], max_turns=1)


def test_the_error_for_a_refused_key_names_the_variable_and_hides_the_key(fake, monkeypatch):
    monkeypatch.setenv("TEST_ENDPOINT_KEY", KEY)
    fake.faults = [(401, {"error": {"message": f"wrong key {KEY}"}})]
    with pytest.raises(AgentError, match="TEST_ENDPOINT_KEY, which was refused") as error:
        EndpointAgent(fake.url, settings(), never)
    assert KEY not in str(error.value) and "wrong key ***" in str(error.value)
    monkeypatch.delenv("TEST_ENDPOINT_KEY")
    fake.faults = [(401, b"no")]
    with pytest.raises(AgentError, match="which is not set"):
        EndpointAgent(fake.url, settings(), never)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
        {"error": {"message": "This model's maximum context length is 4096 tokens"}},
    ],
)
def test_a_conversation_beyond_the_context_ends_its_episode(fake, body):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(400, body)]
        result = play(collector, ALL_TASKS[:1])
    assert result.sampled[0].outcome is Outcome.CONTEXT_FULL


def test_other_client_errors_stop_the_evaluation(fake):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(400, {"error": {"message": "unknown field seed"}})]
        with pytest.raises(AgentError, match="status 400.*unknown field seed"):
            play(collector, ALL_TASKS[:1])


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": [{"message": {}}]}, b"no json"])
def test_an_answer_that_is_not_a_completion_is_refused(fake, body):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(200, body)]
        with pytest.raises(AgentError, match="expected a chat completion"):
            play(collector, ALL_TASKS[:1])


def test_an_answer_without_text_is_a_parse_error(fake):
    fake.text = None
    with playing(fake, model="tiny") as collector:
        result = play(collector, ALL_TASKS[:1])
    assert result.sampled[0].outcome is Outcome.PARSE_ERRORS


def test_an_answer_in_parts_is_refused(fake):
    fake.text = [{"type": "text", "text": "Action: move left"}]
    with playing(fake, model="tiny") as collector:
        with pytest.raises(AgentError, match="the content is list"):
            play(collector, ALL_TASKS[:1])


def test_a_turn_truncated_by_the_token_limit_is_marked(fake):
    fake.finish_reason = "length"
    with playing(fake, model="tiny") as collector:
        result = play(collector, ALL_TASKS[:1], max_turns=1)
    assert result.trajectories[0].turns[0].is_cut


def test_the_error_for_several_models_lists_them(fake):
    fake.models = ["a", "b"]
    with pytest.raises(AgentError, match=r"2 models \(a, b\).*endpoint.model"):
        EndpointAgent(fake.url, settings(), never)
    fake.requests.clear()
    assert EndpointAgent(fake.url, settings(model="b"), never).model == "b" and not fake.requests


@pytest.mark.parametrize("url", ["http://me:pw@h/v1", "http://h/v1?key=sk"])
def test_the_error_for_an_address_with_a_secret_does_not_repeat_the_secret(url):
    with pytest.raises(AgentError, match="key_variable") as error:
        check_address(url)
    assert "pw" not in str(error.value).replace("password", "") and "sk" not in str(error.value)
