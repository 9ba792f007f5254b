"""Small real HTTP servers that answer correctly or fail, as a test configures them."""

import socket
import threading
import time

import pytest

from tests import fake_server
from tests.fake_server import DROP


class CountingWorld:
    """An environment similar to TextCraft over HTTP; it records the actions of each session.

    `faults` maps a path to a list of faults, one per request; regular answers follow. A fault is
    one of four: a pair `(status, body)` whose body is bytes or a JSON value; `DROP`; or a number
    of seconds, or a function, to wait for before the regular answer.
    """

    def __init__(self):
        self.faults = {}
        self.calls = []  # (path, body) of each request, in order of arrival
        self.sessions = {}  # session number -> [data_idx, actions so far]
        self.capacity = 1000
        self.first_number = 0
        self.created = 0
        self.lock = threading.Lock()

    def count(self, path):
        with self.lock:
            return sum(called == path for called, _ in self.calls)

    def answer(self, path, body):
        with self.lock:
            self.calls.append((path, body))
            fault = self.faults[path].pop(0) if self.faults.get(path) else None
        if isinstance(fault, (int, float)):
            time.sleep(fault)
        elif callable(fault):
            fault()
        elif fault is not None:
            return fault
        with self.lock:
            return self.own_answer(path, body)

    def own_answer(self, path, body):
        if path == "/create":
            if len(self.sessions) >= self.capacity:
                return 503, {"error": "full", "type": "capacity"}
            number = self.first_number + self.created
            self.created += 1
            self.sessions[number] = [None, []]
            return 200, {"id": number, "observation": "", "done": False, "reward": 0}
        if path in ("/reset", "/step", "/close") and body["id"] not in self.sessions:
            return 404, {"error": f"no session {body['id']}", "type": "unknown_session"}
        if path == "/reset":
            self.sessions[body["id"]] = [body["data_idx"], []]
            text = f"task {body['data_idx']}"
            return 200, {"id": body["id"], "observation": text, "done": False, "reward": 0}
        if path == "/step":
            data_idx, actions = self.sessions[body["id"]]
            actions.append(body["action"])
            done = body["action"] == "win"
            text = f"task {data_idx}: {','.join(actions)}"
            return 200, {"observation": text, "reward": int(done), "done": done}
        if path == "/close":
            del self.sessions[body["id"]]
            return 200, True
        return 404, {"detail": "Not Found"}


def serving(world, port=0):
    """Runs a server for a `CountingWorld` on a port."""
    return fake_server.serving(lambda request: world.answer(request.path, request.json()), port)


@pytest.fixture
def world():
    return CountingWorld()


@pytest.fixture
def server(world):
    with serving(world) as running:
        yield running


@pytest.fixture
def serve():
    """Returns `serve(world, port=0)`, a context manager that runs a server for a world."""
    return serving


@pytest.fixture
def drop():
    """Returns DROP, the fault that closes the connection without a reply."""
    return DROP


@pytest.fixture
def free_port():
    """Returns a port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
