"""ScienceWorld task and variation of each index, and the official split.

The tasks are AgentGym's (arXiv:2406.04151): 23 of ScienceWorld's 30 task types with every
variation, in ScienceWorld's order. `task_table.json` contains their names, numbers of variations
and official sets. `python tests/envs/sciworld/make_task_table.py` reads them from the simulator.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any

from agentgym_envs.base import manifest

TABLE = pathlib.Path(__file__).with_name("task_table.json")


@dataclasses.dataclass(frozen=True)
class Task:
    """The task type and variation that a task index selects.

    Attributes:
      task: Name of the task type in ScienceWorld, such as `boil`.
      number: Number of the task type in ScienceWorld, such as `1-1`. The part before the dash is
          the topic.
      topic: Family of the task type in reports, such as `Matter`.
      split: Official set of the variation: `train`, `dev` or `test`.
    """

    data_idx: int
    task: str
    number: str
    topic: str
    variation: int
    split: str


@functools.cache
def all_tasks() -> tuple[Task, ...]:
    """Returns all tasks in the order of their indices."""
    tasks: list[Task] = []
    for entry in json.loads(TABLE.read_text(encoding="utf-8")):
        sets = {
            variation: split
            for split in (manifest.TRAIN, manifest.DEV, manifest.TEST)
            for variation in range(entry[split][0], entry[split][1] + 1)
        }
        for variation in range(entry["variations"]):
            tasks.append(
                Task(
                    data_idx=len(tasks),
                    task=entry["task"],
                    number=entry["number"],
                    topic=entry["topic"],
                    variation=variation,
                    split=sets[variation],
                )
            )
    return tuple(tasks)


def task_manifest() -> list[dict[str, Any]]:
    """Returns the task manifest as JSON objects."""
    return [dataclasses.asdict(task) for task in all_tasks()]
