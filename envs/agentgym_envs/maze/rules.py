"""Differences between our Maze and AgentGym's: indices, parsing, rejections, limit of moves."""

from agentgym_envs.base.environment import EnvironmentFault, check_task
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.maze.layout import MOVES
from agentgym_envs.maze.tasks import STARTS, Task, all_tasks

MAX_MOVES = 50


class Rules:
    """Our rules.

    Attributes:
      last_action: Maximum number of actions; the last of them ends the episode.
      last_action_moves: True if that last action still moves the agent.
      failure_reward: Reward of the last action if the goal is not reached.
    """

    last_action = MAX_MOVES
    last_action_moves = True
    failure_reward: float = 0

    def task(self, data_idx: int) -> Task:
        """Returns the task of an index; raises EnvironmentFault (UNKNOWN_TASK)."""
        check_task("maze", data_idx, len(all_tasks()))
        return all_tasks()[data_idx]

    def read(self, action: str) -> str | None:
        """Returns the move that an action means; None if the action is not a move.

        Case and spaces do not matter. A bare direction is also a move, as in AgentGym's client.
        """
        words = action.lower().split()
        move = " ".join(words if words[:1] == ["move"] else ["move", *words])
        return move if move in MOVES else None

    def refusal(self, move: str | None) -> str:
        """Returns the message for a move into a wall, or for an unknown action (None)."""
        if move is None:
            return f"You cannot do that. Possible actions: {', '.join(MOVES)}. "
        return f"You cannot {move}, there is a wall. "


class CompatRules(Rules):
    """AgentGym's rules: after 50 moves one more action is accepted, but not executed."""

    last_action = MAX_MOVES + 1
    last_action_moves = False
    failure_reward: float = -1

    def task(self, data_idx: int) -> Task:
        """Returns the task of an index.

        Negative indices count from the end of AgentGym's games, including the unplayable game 25.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        games = len(STARTS) + 1
        if data_idx >= games:
            raise _unknown_game(data_idx, f"The game {data_idx} is not valid.")
        if data_idx < -games:
            raise _unknown_game(data_idx, "list index out of range")
        if data_idx % games == len(STARTS):
            raise _unknown_game(data_idx, "")  # AgentGym's assertion fails without a text
        return all_tasks()[data_idx % games]

    def read(self, action: str) -> str | None:
        """Returns the action if it is exactly the name of a move."""
        return action if action in MOVES else None

    def refusal(self, move: str | None) -> str:
        """Returns an empty text, as AgentGym's server does."""
        return ""


def _unknown_game(data_idx: int, compat_message: str) -> EnvironmentFault:
    return EnvironmentFault(
        ErrorKind.UNKNOWN_TASK,
        f"AgentGym's maze has games 0 .. {len(STARTS) - 1}, the index was {data_idx}",
        compat_message=compat_message,
    )
