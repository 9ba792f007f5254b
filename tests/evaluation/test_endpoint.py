"""A chat endpoint as player, against a small fake server."""

import contextlib
import http.server
import json
import threading
import time

import pytest
from playing_parts import ALL_TASKS, maze, play

from agentgym_jax.evaluation.endpoint import EndpointPlayer, split_url
from agentgym_jax.evaluation.players import PlayerError, PlayerStopped
from agentgym_jax.run.settings import EndpointSettings
from agentgym_jax.trajectory import Outcome, to_record

KEY = "sk-very-secret"


def never():
    return False


class Fake(http.server.ThreadingHTTPServer):
    """Answers `Action: move left`, or what `faults` holds for the next requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = []  # (path, headers, body)
        self.asked = []  # paths of requests, before they are answered
        self.hold = threading.Event()  # cleared: requests are not answered
        self.hold.set()
        self.faults = []
        self.models = ["tiny"]
        self.text = "Action: move left"
        self.finish_reason = "stop"
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path, body):
        if self.faults:
            return self.faults.pop(0)
        if path == "/v1/models":
            return 200, {"data": [{"id": name} for name in self.models]}
        if path != "/v1/chat/completions":
            return 404, {"error": {"message": "no such route"}}
        message = {"role": "assistant", "content": self.text}
        return 200, {"choices": [{"message": message, "finish_reason": self.finish_reason}]}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.asked.append(self.path)
        self.server.hold.wait()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(data) if data else None
        self.server.requests.append((self.path, dict(self.headers), body))
        status, answer = self.server.answer(self.path, body)
        if status is None:  # the connection ends without an answer
            self.close_connection = True
            return
        reply = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST

    def log_message(self, *arguments):
        pass


@pytest.fixture
def fake():
    server = Fake()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.hold.set()
    server.shutdown()
    server.server_close()
    thread.join()


def settings(**changes):
    default = dict(
        model="",
        key_variable="TEST_ENDPOINT_KEY",
        workers=3,
        connect_timeout_s=30.0,
        timeout_s=60.0,
        patience_s=20.0,
        send_seed=True,
        max_tokens_field="max_tokens",
    )
    return EndpointSettings(**default | changes)


@contextlib.contextmanager
def playing(fake, **changes):
    with maze(None, EndpointPlayer(fake.url, settings(**changes), never)) as collector:
        yield collector


def chats(fake):
    return [body for path, _, body in fake.requests if path == "/v1/chat/completions"]


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
    assert all(h["Authorization"] == f"Bearer {KEY}" for _, h, _ in fake.requests)
    records = json.dumps([to_record(t) for t in result.trajectories])
    assert KEY not in records and "move left" in records


def test_the_seed_of_a_turn_depends_on_what_is_sampled_alone(fake):
    with playing(fake) as collector:
        play(collector, ALL_TASKS[:2], max_turns=2)
        together = {body["seed"] for body in chats(fake)}
        fake.requests.clear()
        play(collector, ALL_TASKS[1:2], max_turns=2)
        assert {body["seed"] for body in chats(fake)} < together


def test_without_a_key_none_is_sent_and_the_seed_can_be_left_out(fake, monkeypatch):
    monkeypatch.delenv("TEST_ENDPOINT_KEY", raising=False)
    with playing(fake, send_seed=False, max_tokens_field="max_completion_tokens") as collector:
        play(collector, ALL_TASKS[:1], max_turns=1)
    assert all("Authorization" not in headers for _, headers, _ in fake.requests)
    assert "seed" not in chats(fake)[0] and chats(fake)[0]["max_completion_tokens"] == 50


def test_a_busy_endpoint_is_asked_again(fake):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(429, {"error": "slow down"}), (503, b"busy"), (None, b"")]
        result = play(collector, ALL_TASKS[:1], max_turns=1)
    assert result.sampled[0].outcome is Outcome.HORIZON
    assert len(chats(fake)) == 4


def test_a_player_that_is_closed_asks_no_more(fake):
    player = EndpointPlayer(fake.url, settings(model="tiny", patience_s=60.0), never)
    fake.faults = [(503, b"busy")] * 50
    ended = []

    def ask():
        with pytest.raises(PlayerError, match="stopping"):
            player._exchange("POST", "/chat/completions", {})
        ended.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    while not fake.requests:
        time.sleep(0.01)
    player.close()
    thread.join(20.0)
    assert ended


def test_a_stop_ends_the_wait_for_an_endpoint_that_answers_nothing(fake):
    """Neither the patience nor the limit of a request is waited for."""
    fake.hold.clear()
    with pytest.raises(PlayerStopped, match="stopped while"):
        EndpointPlayer(fake.url, settings(timeout_s=1e6), lambda: bool(fake.asked))


def test_a_stop_ends_the_wait_for_an_endpoint_that_is_busy(fake):
    fake.faults = [(503, b"busy")] * 50
    with pytest.raises(PlayerStopped, match="stopped while"):
        EndpointPlayer(fake.url, settings(patience_s=1e6), lambda: bool(fake.requests))


def test_patience_ends_and_nothing_is_scored_as_a_failure(fake):
    with playing(fake, model="tiny", patience_s=0.1) as collector:
        fake.faults = [(500, b"broken")] * 50
        with pytest.raises(PlayerError, match=r"failed 1 times.*status 500: broken"):
            play(collector, ALL_TASKS[:1], max_turns=1)


def test_a_refused_key_is_named_by_its_variable_and_never_shown(fake, monkeypatch):
    monkeypatch.setenv("TEST_ENDPOINT_KEY", KEY)
    fake.faults = [(401, {"error": {"message": f"wrong key {KEY}"}})]
    with pytest.raises(PlayerError, match="TEST_ENDPOINT_KEY, which was refused") as error:
        EndpointPlayer(fake.url, settings(), never)
    assert KEY not in str(error.value) and "wrong key ***" in str(error.value)
    monkeypatch.delenv("TEST_ENDPOINT_KEY")
    fake.faults = [(401, b"no")]
    with pytest.raises(PlayerError, match="which is not set"):
        EndpointPlayer(fake.url, settings(), never)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
        {"error": {"message": "This model's maximum context length is 4096 tokens"}},
    ],
)
def test_a_conversation_that_does_not_fit_ends_its_episode(fake, body):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(400, body)]
        result = play(collector, ALL_TASKS[:1])
    assert result.sampled[0].outcome is Outcome.CONTEXT_FULL


def test_another_refusal_stops_the_evaluation(fake):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(400, {"error": {"message": "unknown field seed"}})]
        with pytest.raises(PlayerError, match="status 400.*unknown field seed"):
            play(collector, ALL_TASKS[:1])


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": [{"message": {}}]}, b"no json"])
def test_an_answer_that_is_no_completion_is_refused(fake, body):
    with playing(fake, model="tiny") as collector:
        fake.faults = [(200, body)]
        with pytest.raises(PlayerError, match="expected a chat completion"):
            play(collector, ALL_TASKS[:1])


def test_an_answer_without_text_is_an_unreadable_turn(fake):
    fake.text = None
    with playing(fake, model="tiny") as collector:
        result = play(collector, ALL_TASKS[:1])
    assert result.sampled[0].outcome is Outcome.INVALID_ACTION


def test_an_answer_in_parts_is_refused(fake):
    fake.text = [{"type": "text", "text": "Action: move left"}]
    with playing(fake, model="tiny") as collector:
        with pytest.raises(PlayerError, match="the content is list"):
            play(collector, ALL_TASKS[:1])


def test_a_turn_that_the_limit_cut_is_marked(fake):
    fake.finish_reason = "length"
    with playing(fake, model="tiny") as collector:
        result = play(collector, ALL_TASKS[:1], max_turns=1)
    assert result.trajectories[0].turns[0].is_cut


def test_several_models_are_named_and_not_guessed(fake):
    fake.models = ["a", "b"]
    with pytest.raises(PlayerError, match=r"2 models \(a, b\).*endpoint.model"):
        EndpointPlayer(fake.url, settings(), never)
    fake.requests.clear()
    assert EndpointPlayer(fake.url, settings(model="b"), never).model == "b" and not fake.requests


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000", ("http://h:8000", "/v1")),
        ("http://h:8000/v1/", ("http://h:8000", "/v1")),
        ("https://h/api/v1/chat/completions", ("https://h", "/api/v1")),
    ],
)
def test_the_address_may_end_at_the_host_the_version_or_the_route(url, expected):
    assert split_url(url) == expected


@pytest.mark.parametrize("url", ["http://me:pw@h/v1", "http://h/v1?key=sk"])
def test_an_address_with_a_secret_is_refused_without_repeating_it(url):
    with pytest.raises(PlayerError, match="key_variable") as error:
        split_url(url)
    assert "pw" not in str(error.value).replace("password", "") and "sk" not in str(error.value)
