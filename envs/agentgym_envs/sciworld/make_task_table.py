"""Writes `task_table.json`: task types, variations and official sets, asked from the simulator.

python -m agentgym_envs.sciworld.make_task_table
"""

import json
from typing import Any

from scienceworld.constants import TASKS

from agentgym_envs.sciworld.simulator import Simulator
from agentgym_envs.sciworld.tasks import EXCLUDED, TABLE


def task_table(simulator: Simulator) -> list[dict[str, Any]]:
    """One object a task type; sets are first and last variation."""
    table = []
    for entry in TASKS:
        if entry["task_id"] in EXCLUDED:
            continue
        sets = simulator.official_sets(entry["task_name"])
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


def _bounds(members: list[int]) -> tuple[int, int]:
    first, last = members[0], members[-1]
    if members != list(range(first, last + 1)):
        raise ValueError(f"expected consecutive variations, found {members}")
    return first, last


def main() -> None:
    """Writes the table."""
    simulator = Simulator()
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in task_table(simulator))
    simulator.close()
    TABLE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
