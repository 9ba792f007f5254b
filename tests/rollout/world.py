"""Environment server for tests of rollouts."""

import collections
import hashlib
import threading
import time

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.data.tasks import Task
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import EnvironmentText
from tests.fake_server import FakeServer

# Every output of an untrained policy is parsed as an action.
TEXT = EnvironmentText(
    preamble=(), parse=lambda text: ParsedAction(text.encode().hex() or "nothing")
)


def make_requests(tasks, group, limits, sampling):
    """Returns the requests of `group` episodes for each task."""
    return [
        EpisodeRequest(Task("textcraft", task, ""), sample, 0, 0, limits, sampling)
        for task in tasks
        for sample in range(group)
    ]


class World:
    """A deterministic environment whose requests name the session `id`.

    `fault(task, step, attempt)` returns the fault of a request, or None.
    """

    def __init__(self, fault=None, delay=None):
        self.fault = fault or (lambda task, step, attempt: None)
        self.delay = delay or (lambda task, step: 0.0)
        self.sessions = {}
        self.created = 0
        self.attempts = collections.Counter()
        self.lock = threading.Lock()
        self.start(0)
        self.url = self.server.url

    def start(self, port):
        self.server = FakeServer(lambda r: self.answer(r.path, r.json()), port).start()

    def stop(self):
        self.server.stop()

    def answer(self, path, body):
        with self.lock:
            if path == "/create":
                session = self.created
                self.created += 1
                self.sessions[session] = None
                return 200, {"id": session, "observation": "", "done": False, "reward": 0}
            if path == "/close":
                return 200, self.sessions.pop(body["id"], "none") != "none"
            if path == "/reset":
                task = body["data_idx"]
                self.attempts[task] += 1
                self.sessions[body["id"]] = [task, 0, self.attempts[task]]
            state = self.sessions[body["id"]]
            task, step, attempt = state
            state[1] += 1
        time.sleep(self.delay(task, step))
        fault = self.fault(task, step, attempt)
        if fault is not None:
            return fault
        if path == "/reset":
            return 200, {"observation": f"task {task}", "done": False, "reward": 0}
        digest = hashlib.sha256(f"{task} {step} {body['action']}".encode()).digest()
        done = step == 3 or digest[0] < 60
        reward = int(done and digest[1] < 128)
        return 200, {"observation": digest.hex()[:8], "reward": reward, "done": done}
