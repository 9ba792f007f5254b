"""Which request of an episode this is, so that one that comes twice or late does no harm.

A proxy that tries again, or a network that delivers late, may bring a step to the server twice. Taken
twice it would change the world without anybody's knowledge. A client that numbers its requests
(`TURN_HEADER`) is safe from that; one that does not is served as AgentGym serves it.
"""

import dataclasses
import re

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import TURN_HEADER, ErrorKind

_FORM = re.compile(rb"([A-Za-z0-9_-]{1,64})/([0-9]{1,9})")


@dataclasses.dataclass(frozen=True)
class Turn:
    """The place of a request.

    Attributes:
      episode: made up by the client at each reset.
      number: 0 for the reset, then of the step.
    """

    episode: str
    number: int


def read_turn(header: bytes) -> Turn | None:
    """The value of TURN_HEADER; None if it was not sent.

    Raises:
      EnvironmentFault: INVALID_REQUEST, it has another form.
    """
    if not header:
        return None
    found = _FORM.fullmatch(header)
    if found is None:
        raise EnvironmentFault(
            ErrorKind.INVALID_REQUEST,
            f"{TURN_HEADER} is {header[:100]!r}, expected `<letters and digits>/<number>`",
        )
    return Turn(found[1].decode(), int(found[2]))


def is_repeated(turn: Turn | None, last: Turn | None) -> bool:
    """Whether a request is the one that was answered last.

    Args:
      turn: of the request; None counts as the next one.
      last: of the latest reset or step of its session; None if that had no number.

    Raises:
      EnvironmentFault: OUT_OF_TURN, it is neither that nor the next one, nor begins an episode.
    """
    if turn is None:
        return False
    if turn == last:
        return True
    is_same_episode = last is not None and last.episode == turn.episode
    if turn.number == 0 and not is_same_episode:
        return False
    if last is not None and is_same_episode and turn.number == last.number + 1:
        return False
    at = "without numbers" if last is None else f"at {last.episode}/{last.number}"
    raise EnvironmentFault(
        ErrorKind.OUT_OF_TURN,
        f"the request is {turn.episode}/{turn.number}, the session is {at}. It came late or again, "
        "or the session belongs to another episode. POST /reset to start one.",
    )
