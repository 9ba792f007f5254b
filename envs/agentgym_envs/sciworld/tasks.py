"""Which ScienceWorld task and variation an index stands for, and the official split.

The tasks are AgentGym's (arXiv:2406.04151): 23 of ScienceWorld's 30 task types, every variation,
in ScienceWorld's order. `task_table.json` holds their names, numbers of variations and official
sets; `python -m agentgym_envs.sciworld.make_task_table` asks the simulator for them.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any

from agentgym_envs.base import manifest

TABLE = pathlib.Path(__file__).with_name("task_table.json")
# Task types that AgentGym leaves out, by their ScienceWorld number.
EXCLUDED = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})


@dataclasses.dataclass(frozen=True)
class Task:
    """What a task index stands for.

    Attributes:
      data_idx: task index.
      task: ScienceWorld's name of the task type, such as `boil`.
      number: ScienceWorld's number of it, such as `1-1`; the part before the dash is the topic.
      topic: its family in reports, such as `Matter`.
      variation: variation of the task type.
      split: ScienceWorld's own set: `train`, `dev` or `test`.
    """

    data_idx: int
    task: str
    number: str
    topic: str
    variation: int
    split: str


@functools.cache
def all_tasks() -> tuple[Task, ...]:
    """All tasks, in the order of their indices."""
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
    """The facts about all tasks as JSON objects."""
    return [dataclasses.asdict(task) for task in all_tasks()]
