"""Messages between a server and its worker processes.

A worker's first message is None if the worker is ready, otherwise the text of the SetupError. Then
the server sends requests, each a tuple of operation, session id and argument.
"""

import dataclasses

from agentgym_envs.base.protocol import ErrorKind


@dataclasses.dataclass(frozen=True)
class Fault:
    """An EnvironmentFault in a form that can be sent, with the same fields."""

    kind: ErrorKind
    message: str
    compat_message: str
    origin: str


# Answer to a request: the body of the HTTP answer, or the error.
Reply = bytes | Fault
