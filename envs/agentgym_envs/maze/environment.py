"""The maze as an environment with text observations and actions."""

import dataclasses
from typing import Any

from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.episodic import EpisodicEnvironment
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
from agentgym_envs.maze.rules import MAX_MOVES, Rules
from agentgym_envs.maze.tasks import Task

SUCCESS = "Success\n"
FAILURE = "Failure\n"


@dataclasses.dataclass
class Walk:
    """State of one episode, which every action changes.

    Attributes:
      actions: Number of actions so far, rejected ones included.
      score: Sum of the rewards.
    """

    task: Task
    position: Cell
    text: str
    actions: int = 0
    score: float = 0
    done: bool = False


class MazeEnvironment(EpisodicEnvironment[Walk]):
    """Maze in text: an observation gives the position, the goal and the walls next to the agent."""

    name = "maze"

    def __init__(self, rules: Rules):
        self._rules = rules

    def reset(self, data_idx: int) -> StepResult:
        """Starts an episode with the agent at the start of a task."""
        task = self._rules.task(data_idx)
        self._episode = Walk(task, task.start, describe(task.start, task.goal))
        return StepResult(self._episode.text, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Moves one cell. At the goal the reward is 1 and the episode ends."""
        walk = self.playing
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
        """Returns the next move of the shortest path."""
        walk = self.playing
        return best_move(walk.position, walk.task.goal)

    def valid_actions(self) -> list[str]:
        """Returns the moves that no wall blocks."""
        return open_moves(self.playing.position)

    def detail(self) -> dict[str, Any]:
        """Returns the answer to `GET /detail`; its reward is the sum over the episode."""
        walk = self.episode
        return {
            "maze_name": NAME,
            "observation": walk.text,
            "done": walk.done,
            "reward": walk.score,
            "deleted": False,
        }

    def state(self) -> dict[str, Any]:
        """Returns the task, the position (row and column from 0) and a drawing of the maze."""
        if self._episode is None:
            return {}
        walk = self._episode
        return {
            "data_idx": walk.task.data_idx,
            "goal": list(walk.task.goal),
            "position": list(walk.position),
            "moves": walk.actions,
            "max_moves": MAX_MOVES,
            "grid": draw(walk.position, walk.task.goal),
        }

    def snapshot(self) -> dict[str, Any]:
        """Returns the complete state of the episode."""
        walk = self.episode
        return {
            "data_idx": walk.task.data_idx,
            "position": list(walk.position),
            "text": walk.text,
            "actions": walk.actions,
            "score": walk.score,
            "done": walk.done,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restores a snapshot."""
        row, column = snapshot["position"]
        self._episode = Walk(
            task=self._rules.task(snapshot["data_idx"]),
            position=(row, column),
            text=snapshot["text"],
            actions=snapshot["actions"],
            score=snapshot["score"],
            done=snapshot["done"],
        )

    def _move(self, walk: Walk, action: str) -> str:
        """Performs an action; returns a message if the action is impossible."""
        move = self._rules.read(action)
        if move is None or move not in open_moves(walk.position):
            return self._rules.refusal(move)
        walk.position = beside(walk.position, MOVES[move])
        return ""


def _end(walk: Walk, text: str, reward: float) -> StepResult:
    walk.done, walk.score, walk.text = True, reward, text
    return StepResult(text, reward=reward, score=reward, done=True)
