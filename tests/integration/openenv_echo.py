"""Echo environment on the package openenv, run by a Python that has this package.

Prints the port on which it listens. An episode has two turns; half of all messages earn a reward.
"""

import socket
import sys

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Message(Action):
    """One message."""

    message: str


class Echo(Observation):
    """The message."""

    echoed_message: str
    message_length: int = 0


class EchoEnvironment(Environment):
    """Answers every message with the message."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id, step_count=0)
        return Echo(echoed_message=f"task {seed}")

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        reward = float(sum(action.message.encode()) % 2)
        done = self._state.step_count == 2
        text = action.message
        return Echo(echoed_message=text, message_length=len(text), reward=reward, done=done)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(EchoEnvironment, Message, Echo, max_concurrent_envs=16)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        server.run(sockets=[listener])
