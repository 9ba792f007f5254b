"""Recorded traffic of the original AgentGym servers, replayed to the client.

The replaying server accepts only the recorded requests.

The checks do not use the client's table of protocols, because that table is under test.
"""

import contextlib
import json
import pathlib
import urllib.parse

import pytest

from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause
from tests.env_clients import failure
from tests.fake_server import serving
from tests.waiting import PATIENCE_S

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "agentgym"
ENVIRONMENTS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
MOUNT = {"maze": "/maze", "wordle": "/wordle"}
TEXT_OF_STEP = {"sqlgym": "state"}
RESULT_OF_STEP = {"sciworld": "score", "babyai": "score"}
FIRST_TEXT = {
    "sciworld": lambda body: f"{body['task_description']}\n{body['observation']}",
    "sqlgym": lambda body: body[0],
    "searchqa": lambda body: body,
    "weather": lambda body: body,
    "movie": lambda body: body,
    "academia": lambda body: body,
}
SOLVED = {
    "sciworld": lambda answer: answer["score"] == 100,
    "babyai": lambda answer: answer["done"] and answer["reward"] > 0,
}


def episodes(environment):
    lines = (FOLDER / f"{environment}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


class Recording:
    """Recorded answers of one episode at a time; only the next recorded request is accepted."""

    def __init__(self, environment):
        self.mount = MOUNT[environment] if environment in MOUNT else ""
        self.queue = []
        self.session = None
        self.wrong = []

    def load(self, episode):
        self.queue = list(episode["steps"])
        self.session = None

    def answer(self, method, target, body):
        url = urllib.parse.urlsplit(target)
        query = {k: int(v) for k, v in urllib.parse.parse_qsl(url.query)}
        if not self.queue or not self.fits(self.queue[0], method, url.path, query, body):
            expected = self.queue[0] if self.queue else "nothing"
            self.wrong.append(f"{method} {target} {body}, recorded is {expected}")
            return 418, b"{}"
        step = self.queue.pop(0)
        reply = step["resp"]
        if step["path"] == "/create":
            self.session = reply if isinstance(reply, int) else reply["id"]
        if isinstance(reply, dict) and "<text>" in reply:
            return step["status"], reply["<text>"].encode()
        return step["status"], json.dumps(reply).encode()

    def fits(self, step, method, path, query, body):
        def own(recorded):
            recorded = recorded or {}
            return {k: self.session if v == "$ID" else v for k, v in recorded.items()}

        wanted = own(step["json"])
        # the server ignored all other fields that the recorded client sent
        if step["path"] == "/create":
            wanted = {k: v for k, v in wanted.items() if k == "id"}
        where = (step["m"], self.mount + step["path"], own(step.get("query")))
        return (method, path, query) == where and (body or {}) == wanted


@contextlib.contextmanager
def replaying(environment):
    """Yields a client of the environment and the recording that answers the client."""
    recording = Recording(environment)

    def answer(request):
        status, reply = recording.answer(request.method, request.path, request.json())
        request.hangs_up = status == 500  # the connection closes unannounced, as with uvicorn
        return status, reply

    with serving(answer) as server:
        client = EnvClient(
            server.url, environment, connect_timeout_s=PATIENCE_S, step_timeout_s=PATIENCE_S
        )
        try:
            yield client, recording
        finally:
            client.disconnect()


def call(client, step, session):
    """Returns the client call that must make the recorded request."""
    body = step["json"] or {}
    if step["path"] == "/create":
        return client.create
    names = [name for name in ("env_idx", "id") if name in body]
    number = session if body[names[0]] == "$ID" else body[names[0]]
    if step["path"] == "/close":
        return lambda: client.close(number)
    if step["path"] == "/step":
        return lambda: client.step(number, body["action"])
    (task,) = [v for k, v in body.items() if k != names[0]]
    return lambda: client.reset(number, task)


def is_error(step):
    body = step["resp"]
    return step["status"] != 200 or (isinstance(body, dict) and "error" in body)


def check_error(step, error):
    body = step["resp"]
    if step["status"] == 500:
        assert error.cause is EnvCause.HTTP_STATUS
        assert "Internal Server Error" in error.message
        return
    text = body["error"]
    lost = ("The id" in text and "not valid" in text) or "deleted" in text
    assert error.cause is (EnvCause.SESSION_LOST if lost else EnvCause.ERROR_BODY)
    assert text in error.message


def check_start(environment, body, observation):
    if environment in FIRST_TEXT:
        wanted = FIRST_TEXT[environment](body)
    else:
        wanted = body["observation"]
    shown = observation.text
    if environment == "wordle":
        shown, _, vocabulary = shown.partition("\n")
        assert "panic" in vocabulary
    assert shown == wanted
    assert (observation.reward, observation.score) == (0, 0)
    assert (observation.done, observation.success) == (False, False)


def check_step(environment, body, observation):
    text = TEXT_OF_STEP[environment] if environment in TEXT_OF_STEP else "observation"
    result = RESULT_OF_STEP[environment] if environment in RESULT_OF_STEP else "reward"
    scale = 0.01 if environment == "sciworld" else 1
    solved = SOLVED[environment](body) if environment in SOLVED else body["reward"] == 1
    assert observation.text == body[text]
    assert observation.reward == pytest.approx(body["reward"] * scale)
    assert observation.score == body[result]
    assert observation.score_scale == scale
    assert observation.done == body["done"]
    assert observation.success == solved


def play(client, recording, environment, episode):
    """Replays an episode through the client; returns the number of checked replies by type."""
    recording.load(episode)
    seen = {"start": 0, "step": 0, "error": 0, "solved": 0}
    session = None
    while recording.queue:
        step = recording.queue[0]
        left = len(recording.queue)
        function = call(client, step, session)
        if step["path"] == "/close" and step["status"] == 404:
            # a missing route is not an error because there is nothing to close
            assert function() is None
        elif is_error(step) and not (step["path"] == "/close" and "error" in str(step["resp"])):
            caught = failure(function)
            check_error(step, caught)
            seen["error"] += 1
        else:
            result = function()
            if step["path"] == "/create":
                session = recording.session
                assert result == session
            elif step["path"] == "/reset":
                check_start(environment, step["resp"], result)
                seen["start"] += 1
            elif step["path"] == "/step":
                check_step(environment, step["resp"], result)
                seen["step"] += 1
                seen["solved"] += result.success
        assert not recording.wrong
        assert len(recording.queue) < left, f"the client sent no request for {step}"
    return seen


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_recorded_sessions_are_replayed_request_by_request(environment):
    total = {}
    with replaying(environment) as (client, recording):
        for episode in episodes(environment):
            for kind, count in play(client, recording, environment, episode).items():
                total[kind] = total.get(kind, 0) + count
    assert total["start"] >= 2
    assert total["step"] >= 8
    assert total["solved"] >= 1
    assert total["error"] >= 1 or environment in ("weather", "movie")


def test_the_recordings_are_small_and_cover_ten_environments():
    assert len(ENVIRONMENTS) == 10
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 150_000


# Texts in the answers of the recorded servers to rejected actions.
REFUSED = {
    "textcraft": ("Could not find", "Could not execute", "Wrong item format"),
    "babyai": ("The action is not recognized", "You cannot drop"),
    "sciworld": (
        "No known action",
        "Unknown action",
        "The door is not",
        "The picture isn't",
        "You can't",
    ),
    "wordle": ("invalid word",),
    "sqlgym": ('near "', "You can only execute", "attempt to write"),
    "searchqa": ("Your previous action is invalid",),
    "weather": ("Format error", "Observation: ERROR"),
    "movie": ("Format error", "Observation: ERROR"),
    "academia": ("Format error", "Observation: ERROR"),
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_recorded_rejections_are_distinguished_from_recorded_observations(environment):
    begins = REFUSED[environment] if environment in REFUSED else ()
    client = EnvClient(
        "http://127.0.0.1:1", environment, connect_timeout_s=PATIENCE_S, step_timeout_s=PATIENCE_S
    )
    field = TEXT_OF_STEP[environment] if environment in TEXT_OF_STEP else "observation"
    answers = [
        step["resp"][field]
        for episode in episodes(environment)
        for step in episode["steps"]
        if step["path"] == "/step" and not is_error(step)
    ]
    for text in answers:
        assert client.facts.is_rejection(text) == text.startswith(begins or ("\0",)), text
    assert sum(text.startswith(begins) for text in answers if begins) >= bool(begins)


@pytest.mark.parametrize("environment", ["weather", "movie", "academia"])
def test_the_instructions_name_every_action_that_the_server_lists(environment):
    told = ORIGINALS[environment].instructions
    lists = [
        step["resp"]["observation"]
        for episode in episodes(environment)
        for step in episode["steps"]
        if "check_valid_actions with" in str(step["json"]) and not is_error(step)
    ]
    listed = next(text for text in lists if "following valid actions" in text)
    names = json.loads(listed[listed.index("[") : listed.index("]") + 1].replace("'", '"'))
    assert len(names) > 8
    for name in names:
        assert f"\n{name}(" in told
