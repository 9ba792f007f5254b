"""Ids of requests, which make repeated and late requests harmless.

A proxy that retries can deliver a step to the server twice. The second execution would silently
change the state of the environment. A client that numbers its requests (`REQUEST_ID_HEADER`) is
protected. Requests of other clients are not checked.
"""

import dataclasses
import re

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import REQUEST_ID_HEADER, ErrorKind

_FORM = re.compile(rb"([A-Za-z0-9_-]{1,64})/([0-9]{1,9})")


@dataclasses.dataclass(frozen=True)
class RequestId:
    """Position of a request in its episode.

    Attributes:
      episode: Word that the client chooses at each reset.
      number: 0 for the reset, otherwise the number of the step.
    """

    episode: str
    number: int


def read_request_id(header: bytes) -> RequestId | None:
    """Parses the value of REQUEST_ID_HEADER; returns None if it was not sent.

    Raises:
      EnvironmentFault: INVALID_REQUEST if the value has another form.
    """
    if not header:
        return None
    found = _FORM.fullmatch(header)
    if found is None:
        raise EnvironmentFault(
            ErrorKind.INVALID_REQUEST,
            f"{REQUEST_ID_HEADER} is {header[:100]!r}, expected `<letters and digits>/<number>`",
        )
    return RequestId(found[1].decode(), int(found[2]))


def is_repeated(request_id: RequestId | None, last: RequestId | None) -> bool:
    """Returns True if a request repeats the one that was answered last.

    Args:
      request_id: Id of the request. A request without an id (None) is treated as the next one.
      last: Id of the session's latest reset or step; None if it had no id.

    Raises:
      EnvironmentFault: OUT_OF_TURN if the request is neither a repetition, nor the next request,
          nor the start of a new episode.
    """
    if request_id is None:
        return False
    if request_id == last:
        return True
    is_same_episode = last is not None and last.episode == request_id.episode
    if request_id.number == 0 and not is_same_episode:
        return False
    if last is not None and is_same_episode and request_id.number == last.number + 1:
        return False
    at = "without numbers" if last is None else f"at {last.episode}/{last.number}"
    raise EnvironmentFault(
        ErrorKind.OUT_OF_TURN,
        f"the request is {request_id.episode}/{request_id.number}, the session is {at}. It came "
        "late or again, or the session belongs to another episode. POST /reset to start one.",
    )
