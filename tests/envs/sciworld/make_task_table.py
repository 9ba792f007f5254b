"""Writes `sciworld/task_table.json`: task types, variations and official splits of the simulator.

python tests/envs/sciworld/make_task_table.py
"""

import json
from typing import Any

from scienceworld.constants import TASKS

from agentgym_envs.sciworld.simulator import Simulator
from agentgym_envs.sciworld.tasks import TABLE

# Task types that AgentGym leaves out, by their ScienceWorld number.
EXCLUDED = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})


def task_table(simulator: Simulator) -> list[dict[str, Any]]:
    """Returns one entry per task type; each split is given by its first and last variation."""
    table = []
    for entry in TASKS:
        if entry["task_id"] in EXCLUDED:
            continue
        sets = official_sets(simulator, entry["task_name"])
        table.append(
            {
                "number": entry["task_id"],
                "task": entry["task_name"],
                "topic": entry["topic"],
                "variations": sum(len(members) for members in sets.values()),
                **{name: _bounds(members) for name, members in sets.items()},
            }
        )
    return table


def official_sets(simulator: Simulator, task: str) -> dict[str, list[int]]:
    """Returns the variations of a task type in ScienceWorld's splits `train`, `dev` and `test`."""
    loader = simulator._loader
    getattr(loader, "taskStr_$eq")(task)
    sets = loader.getSets()
    members = {"train": sets._1(), "dev": sets._2(), "test": sets._3()}
    return {
        name: [int(i) for i in numbers.mkString(",").split(",")]
        for name, numbers in members.items()
    }


def _bounds(members: list[int]) -> tuple[int, int]:
    first, last = members[0], members[-1]
    if members != list(range(first, last + 1)):
        raise ValueError(f"expected consecutive variations, found {members}")
    return first, last


def main() -> None:
    """Writes the table of task types."""
    simulator = Simulator()
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in task_table(simulator))
    simulator.close()
    TABLE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
