"""Replay of requests recorded from AgentGym's servers on this project's servers, without HTTP."""

import json
import pathlib

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import SessionHost
from agentgym_envs.base.routes import session_routes

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "agentgym"


class Replay:
    """A session on this project's server; the path of a recorded request selects the operation."""

    def __init__(self, kind, compat=True):
        self.host = SessionHost(kind, compat)
        prefix = kind.path_prefix
        self.operations = {r.path.removeprefix(prefix): r.operation for r in session_routes(kind)}
        self.created = json.loads(self.host.answer("create", 0, None))

    def ask(self, path, argument=None):
        """Returns the reply or error body; a step's reply is a tuple of the body's values."""
        try:
            body = json.loads(self.host.answer(self.operations[path], 0, argument))
        except EnvironmentFault as fault:
            return {"error": fault.compat_message}
        return tuple(body.values()) if path == "/step" else body


def recorded_calls(name):
    """Yields the calls of each recorded episode but `/close`: path, argument and reply.

    The number of the session is 0.
    """
    lines = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    for line in lines:
        created, *steps = json.loads(line)["steps"]
        number = str(created["resp"]["id"])
        calls = []
        for step in steps:
            reply = step["resp"]
            if isinstance(reply, dict) and "error" in reply:
                reply = {"error": reply["error"].replace(number, "0")}
            elif isinstance(reply, dict) and "id" in reply:
                reply = {**reply, "id": 0}
            elif step["path"] == "/step":
                reply = tuple(reply.values())
            given = [v for k, v in (step["json"] or {}).items() if k != "id"]
            if step["path"] != "/close":
                calls.append((step["path"], given[0] if given else None, reply))
        yield calls
