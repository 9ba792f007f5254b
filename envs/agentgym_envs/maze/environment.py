"""One walk through the maze behind the text protocol."""

import dataclasses
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.maze.layout import (
    MOVES,
    NAME,
    Cell,
    beside,
    best_move,
    describe,
    draw,
    open_moves,
)
from agentgym_envs.maze.rules import MAX_MOVES, CompatRules, OurRules, Rules
from agentgym_envs.maze.tasks import Task

SUCCESS = "Success\n"
FAILURE = "Failure\n"


@dataclasses.dataclass
class Walk:
    """One episode; its fields change with every action.

    Attributes:
      task: which task.
      position: where the agent is.
      text: what was said last.
      actions: how many there were, refused ones included.
      score: sum of the rewards.
      done: whether the episode is over.
    """

    task: Task
    position: Cell
    text: str
    actions: int = 0
    score: float = 0
    done: bool = False


class MazeEnvironment(Environment):
    """A maze seen one cell at a time: the text tells position, goal and the walls around.

    Args:
      rules: ours, or AgentGym's.
    """

    def __init__(self, rules: Rules):
        self._rules = rules
        self._walk: Walk | None = None

    def reset(self, data_idx: int) -> StepResult:
        """Puts the agent at the start of a task.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; the episode before goes on.
        """
        task = self._rules.task(data_idx)
        self._walk = Walk(task, task.start, describe(task.start, task.goal))
        return StepResult(self._walk.text, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Moves one cell; reward 1 and the end at the goal.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset, FINISHED after the end.
        """
        walk = self._playing()
        walk.actions += 1
        is_last = walk.actions == self._rules.last_action
        refusal = ""
        if not is_last or self._rules.last_action_moves:
            refusal = self._move(walk, action)
        if walk.position == walk.task.goal:
            return _end(walk, SUCCESS, reward=1)
        if is_last:
            return _end(walk, FAILURE, reward=self._rules.failure_reward)
        walk.text = refusal + describe(walk.position, walk.task.goal)
        return StepResult(walk.text, reward=0, score=0, done=False)

    def expert_action(self) -> str:
        """The next move of the shortest path."""
        walk = self._playing()
        return best_move(walk.position, walk.task.goal)

    def valid_actions(self) -> list[str]:
        """The moves that no wall stops."""
        return open_moves(self._playing().position)

    def detail(self) -> dict[str, Any]:
        """What `GET /detail` tells; the reward is the sum over the episode."""
        walk = self._started()
        return {
            "maze_name": NAME,
            "observation": walk.text,
            "done": walk.done,
            "reward": walk.score,
            "deleted": False,
        }

    def state(self) -> dict[str, Any]:
        """Task, position and a drawing of the maze; a position is row and column from 0."""
        if self._walk is None:
            return {}
        walk = self._walk
        return {
            "data_idx": walk.task.data_idx,
            "goal": list(walk.task.goal),
            "position": list(walk.position),
            "moves": walk.actions,
            "max_moves": MAX_MOVES,
            "grid": draw(walk.position, walk.task.goal),
        }

    def snapshot(self) -> dict[str, Any]:
        """All of the episode.

        Raises:
          EnvironmentFault: NOT_RESET.
        """
        walk = self._started()
        return {
            "data_idx": walk.task.data_idx,
            "position": list(walk.position),
            "text": walk.text,
            "actions": walk.actions,
            "score": walk.score,
            "done": walk.done,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Goes on from a snapshot."""
        row, column = snapshot["position"]
        self._walk = Walk(
            task=self._rules.task(snapshot["data_idx"]),
            position=(row, column),
            text=snapshot["text"],
            actions=snapshot["actions"],
            score=snapshot["score"],
            done=snapshot["done"],
        )

    def _move(self, walk: Walk, action: str) -> str:
        """Carries an action out; answers what is said if that is not possible."""
        move = self._rules.read(action)
        if move is None or move not in open_moves(walk.position):
            return self._rules.refusal(move)
        walk.position = beside(walk.position, MOVES[move])
        return ""

    def _started(self) -> Walk:
        if self._walk is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "maze: call reset with the index of a task first"
            )
        return self._walk

    def _playing(self) -> Walk:
        walk = self._started()
        if walk.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "maze: this episode is over; reset to start another one"
            )
        return walk


def _end(walk: Walk, text: str, reward: float) -> StepResult:
    walk.done, walk.score, walk.text = True, reward, text
    return StepResult(text, reward=reward, score=reward, done=True)


def make_environment() -> MazeEnvironment:
    """A maze by our rules."""
    return MazeEnvironment(OurRules())


def make_compat_environment() -> MazeEnvironment:
    """A maze by the rules of AgentGym's server."""
    return MazeEnvironment(CompatRules())
