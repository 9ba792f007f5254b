"""Where our Maze and AgentGym's differ: indices, reading of actions, refusals, the limit of moves."""

from typing import Protocol

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.maze.layout import MOVES
from agentgym_envs.maze.tasks import STARTS, Task, all_tasks

MAX_MOVES = 50


class Rules(Protocol):
    """What the two ways to play do differently."""

    # Actions that an episode can have: the last one of them ends it.
    last_action: int
    # Whether that last action still moves the agent, and its reward if the goal is not reached.
    last_action_moves: bool
    failure_reward: float

    def task(self, data_idx: int) -> Task:
        """The task of an index."""

    def read(self, action: str) -> str | None:
        """The move that an action means; None if it means none."""

    def refusal(self, move: str | None) -> str:
        """What is said, before the position, about a move that a wall stops or about no move."""


class OurRules:
    """The default."""

    last_action = MAX_MOVES
    last_action_moves = True
    failure_reward: float = 0

    def task(self, data_idx: int) -> Task:
        """The task of an index.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        if not 0 <= data_idx < len(all_tasks()):
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"maze has tasks 0 .. {len(all_tasks()) - 1}, the index was {data_idx}",
            )
        return all_tasks()[data_idx]

    def read(self, action: str) -> str | None:
        """Case and spaces do not matter, and a bare direction is a move, as in AgentGym's client."""
        words = action.lower().split()
        move = " ".join(words if words[:1] == ["move"] else ["move", *words])
        return move if move in MOVES else None

    def refusal(self, move: str | None) -> str:
        """Says which of the two it was."""
        if move is None:
            return f"You cannot do that. Possible actions: {', '.join(MOVES)}. "
        return f"You cannot {move}, there is a wall. "


class CompatRules:
    """AgentGym's server: one action more than there are moves, and it is not carried out."""

    last_action = MAX_MOVES + 1
    last_action_moves = False
    failure_reward: float = -1

    def task(self, data_idx: int) -> Task:
        """Negative indices count from the end, as in a Python list with the unplayable game.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        games = len(STARTS) + 1
        if data_idx >= games:
            raise _unknown_game(data_idx, f"The game {data_idx} is not valid.")
        if data_idx < -games:
            raise _unknown_game(data_idx, "list index out of range")
        if data_idx % games == len(STARTS):
            raise _unknown_game(data_idx, "")  # the text of a failed assertion
        return all_tasks()[data_idx % games]

    def read(self, action: str) -> str | None:
        """Only the exact words."""
        return action if action in MOVES else None

    def refusal(self, move: str | None) -> str:
        """Nothing is said."""
        return ""


def _unknown_game(data_idx: int, compat_message: str) -> EnvironmentFault:
    return EnvironmentFault(
        ErrorKind.UNKNOWN_TASK,
        f"AgentGym's maze has games 0 .. {len(STARTS) - 1}, the index was {data_idx}",
        compat_message=compat_message,
    )
