"""Tasks of the tool environments, drawn from templates."""

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.tools.world import in_order

Call = tuple[str, Mapping[str, Any]]  # name of a tool and its arguments


@dataclasses.dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
      calls: Calls of tools by which a competent agent reaches the goal, without `finish`.
      answer: Arguments of the call of `finish`.
      expected: The answer or the final state, as `World.is_solved` compares it.
      setup: Keyword arguments of the world.
    """

    goal: str
    calls: tuple[Call, ...]
    answer: Mapping[str, Any]
    expected: Any
    setup: Mapping[str, Any]


def question(goal: str, calls: Sequence[Call], answer: Any, **setup: Any) -> Task:
    """Returns a task whose answer is compared."""
    return Task(goal, tuple(calls), {"answer": answer}, in_order(answer), setup)


_MAX_ATTEMPTS = 2000  # draws of a template
Template = Callable[[random.Random], Task | None]  # None if the drawn values give no task


@dataclasses.dataclass(frozen=True)
class TaskSet:
    """All tasks of an environment and their manifest."""

    tasks: tuple[Task, ...]
    manifest: tuple[Mapping[str, Any], ...]


def draw(
    environment: str, each: int, *, train: Mapping[str, Template], test: Mapping[str, Template]
) -> TaskSet:
    """Draws `each` different tasks of every template, the same on every machine.

    The keys of `train` and `test` are the names of the templates; the splits share no template.
    """
    tasks: list[Task] = []
    listed: list[Mapping[str, Any]] = []
    for split, templates in ((manifest.TRAIN, train), (manifest.TEST, test)):
        for name, template in templates.items():
            rng = random.Random(f"{environment}/{name}")
            seen: dict[str, Task] = {}
            attempts = 0
            while len(seen) < each:
                task = template(rng)
                if task is not None:
                    seen.setdefault(f"{task.goal} {task.setup}", task)
                attempts += 1
                if attempts > _MAX_ATTEMPTS:
                    raise ValueError(f"{environment}: {name} gives only {len(seen)} tasks")
            for task in seen.values():
                facts = {"template": name, "goal": task.goal}
                listed.append({"data_idx": len(tasks), "split": split, **facts})
                tasks.append(task)
    manifest.check(listed)
    return TaskSet(tuple(tasks), tuple(listed))
