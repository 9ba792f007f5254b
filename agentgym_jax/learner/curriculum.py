"""Curricula: choice of the tasks of a step among the next tasks of the schedule.

A choice depends only on the candidates, on the results so far and on a key, so a resumed run draws
the same tasks.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from agentgym_jax.checks.limits import Range
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Trajectory

# Solved and valid episodes of a task or of a task group, by its name. Older episodes count less.
Results = Mapping[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class AllTasks:
    """Trains on every task of the schedule, in its order."""

    candidates = 1

    def choose(
        self,
        tasks: Sequence[Task],
        count: int,
        results: Results,
        *,
        group_size: int,
        key: Sequence[int],
    ) -> list[Task]:
        """Returns the first `count` tasks."""
        return list(tasks[:count])

    def update(
        self, results: Results, tasks: Sequence[Task], trajectories: Sequence[Trajectory]
    ) -> Results:
        """Returns the results unchanged, because the choice does not depend on them."""
        return results


@dataclasses.dataclass(frozen=True)
class SuccessRate:
    """Prefers tasks whose episodes are likely to differ in success.

    The success rate of a task has a Beta distribution. It counts the results of the task and
    `prior` imaginary episodes, which have the rate of its task group. The rate of a group counts its
    results and two imaginary episodes, one of them solved. The weight of a task is the probability
    that some but not all of R episodes succeed. It is 1 - E[p^R] - E[(1 - p)^R], which has a closed
    form.

    Attributes:
      candidates: Number of candidates per chosen task.
      decay: Factor on the earlier results of a task or task group when it has new ones.
      prior: Number of imaginary episodes of a task.
      floor: Minimum weight, so that every task keeps a chance.
    """

    candidates: Annotated[int, Range(2)]
    decay: Annotated[float, Range(0, 1)]
    prior: Annotated[float, Range(above=0, unit="episodes")]
    floor: Annotated[float, Range(above=0, at_most=1)]

    def choose(
        self,
        tasks: Sequence[Task],
        count: int,
        results: Results,
        *,
        group_size: int,
        key: Sequence[int],
    ) -> list[Task]:
        """Returns `count` of the tasks in their order, drawn without replacement by weight."""
        weights = [
            max(self.floor, self.chance_of_variance(task, results, group_size)) for task in tasks
        ]
        # The largest values of log weight + Gumbel noise are a draw without replacement.
        noise = np.random.default_rng(key).gumbel(size=len(tasks))
        order = np.argsort(-(np.log(weights) + noise), kind="stable")
        return [tasks[i] for i in sorted(order[:count])]

    def chance_of_variance(self, task: Task, results: Results, group_size: int) -> float:
        """Returns the probability that some but not all of `group_size` episodes succeed."""
        solved, episodes = results.get(_group_name(task), (0.0, 0.0))
        rate = (solved + 1.0) / (episodes + 2.0)
        solved, episodes = results.get(_task_name(task), (0.0, 0.0))
        a = self.prior * rate + solved
        b = self.prior * (1.0 - rate) + episodes - solved
        i = np.arange(group_size)
        all_solved = np.prod((a + i) / (a + b + i))
        none_solved = np.prod((b + i) / (a + b + i))
        return float(1.0 - all_solved - none_solved)

    def update(
        self, results: Results, tasks: Sequence[Task], trajectories: Sequence[Trajectory]
    ) -> Results:
        """Returns the results after a step; `trajectories` are task-major."""
        group_size = len(trajectories) // len(tasks)
        found: dict[str, list[bool]] = {}
        for i, trajectory in enumerate(trajectories):
            if trajectory.outcome.is_valid:
                task = tasks[i // group_size]
                for name in (_group_name(task), _task_name(task)):
                    found.setdefault(name, []).append(trajectory.success)
        after = dict(results)
        for name, successes in found.items():
            solved, episodes = after.get(name, (0.0, 0.0))
            after[name] = (
                self.decay * solved + sum(successes),
                self.decay * episodes + len(successes),
            )
        return after


Curriculum = AllTasks | SuccessRate
CURRICULA: Mapping[str, Any] = {"none": AllTasks, "success_rate": SuccessRate}


def _group_name(task: Task) -> str:
    return f"group {task.environment} {task.group}"


def _task_name(task: Task) -> str:
    return f"task {task.item_id}"
