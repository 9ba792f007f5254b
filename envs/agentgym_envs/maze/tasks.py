"""Maze tasks: AgentGym's games for testing, walks to other goals of the maze for training."""

import dataclasses
import functools
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.maze.layout import CELLS, Cell, distances

GOAL: Cell = (8, 6)  # goal of every game of AgentGym
# Starts of AgentGym's games, in its order: game i starts at STARTS[i]. AgentGym's game 25 starts at
# the goal and cannot be played.
STARTS: tuple[Cell, ...] = (
    *((1, 1), (1, 2), (1, 3), (1, 4), (1, 5)),
    *((1, 7), (1, 8), (1, 9), (1, 10), (1, 11)),
    *((2, 3), (3, 3), (4, 3), (5, 3)),
    *((5, 4), (5, 5), (5, 6), (6, 6), (7, 6)),
    *((5, 7), (5, 8), (5, 9)),
    *((4, 9), (3, 9), (2, 9)),
)
# Number of moves in the longest of AgentGym's games. The walks for training are not longer.
MAX_DISTANCE = 12


@dataclasses.dataclass(frozen=True)
class Task:
    """One walk from a start to a goal.

    Attributes:
      data_idx: Index of the task; indices below 25 are AgentGym's games.
      split: `test` for AgentGym's games, `train` for the walks to other goals.
    """

    data_idx: int
    start: Cell
    goal: Cell
    split: str

    @property
    def distance(self) -> int:
        """Returns the number of moves of a shortest path."""
        return distances(self.goal)[self.start]


@functools.cache
def all_tasks() -> tuple[Task, ...]:
    """Returns all tasks by data_idx: AgentGym's games, then the other walks by goal and start."""
    walks = [(start, GOAL, manifest.TEST) for start in STARTS]
    walks += [
        (start, goal, manifest.TRAIN)
        for goal in CELLS
        if goal != GOAL
        for start in CELLS
        if 0 < distances(goal)[start] <= MAX_DISTANCE
    ]
    return tuple(Task(i, *walk) for i, walk in enumerate(walks))


@functools.cache
def task_manifest() -> tuple[dict[str, Any], ...]:
    """Returns the start, goal, distance and split of all tasks."""
    tasks = tuple(
        {
            "data_idx": task.data_idx,
            "split": task.split,
            "start": list(task.start),
            "goal": list(task.goal),
            "distance": task.distance,
        }
        for task in all_tasks()
    )
    manifest.check(tasks)
    return tasks
