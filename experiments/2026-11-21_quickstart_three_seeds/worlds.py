"""Are the held-out worlds of the quickstart different from each other and from all trained ones?

  PYTHONPATH=. python experiments/2026-11-21_quickstart_three_seeds/worlds.py

A world is the whole grid, the agent's place and direction, and the goal.
"""

import hashlib

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import goal_text
from agentgym_envs.babyai.world import make_world
from configs import quickstart


def fingerprint(data_idx: int) -> str:
    """Hash of a world."""
    world, _ = make_world(levels.task(data_idx))
    simulator = world.unwrapped if hasattr(world, "unwrapped") else world
    parts = (
        simulator.grid.encode().tobytes(),
        bytes(int(x) for x in simulator.agent_pos),
        bytes([int(simulator.agent_dir)]),
        goal_text(world.mission).encode(),
    )
    return hashlib.sha256(b"|".join(parts)).hexdigest()


def main() -> None:
    """Prints one line a level."""
    seen = {}
    for name, level in (quickstart.LEVELS | quickstart.EXPERT).items():
        for first, last in ((100, 1100), (1100, 1300), (2300, 2700)):
            for seed in range(first, last):
                seen[fingerprint(40 * seed + level)] = name
    for name, level in quickstart.LEVELS.items():
        held_out = [fingerprint(40 * seed + level) for seed in range(42)]
        common = sum(world in seen for world in held_out)
        print(f"{name}: {len(set(held_out))} distinct of {len(held_out)}, {common} of them trained")


if __name__ == "__main__":
    main()
