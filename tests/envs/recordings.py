"""Replay of requests recorded from AgentGym's servers on this project's servers, without HTTP."""

import json

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import SessionHost
from agentgym_envs.base.routes import session_routes


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
