"""What a worker process says to its server. Requests are (operation, session id, argument)."""

import dataclasses

from agentgym_envs.base.protocol import ErrorKind


@dataclasses.dataclass(frozen=True)
class Ready:
    """The first message of a worker that can serve."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The first message of a worker whose environment cannot run on this machine."""

    message: str


@dataclasses.dataclass(frozen=True)
class Fault:
    """An EnvironmentFault on its way; see there."""

    kind: ErrorKind
    message: str
    compat_message: str


# Answer to a request: the body of the HTTP answer, or why there is none.
Reply = bytes | Fault
