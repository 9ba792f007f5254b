"""Checks that the held-out worlds of the quickstart differ from each other and from all training
worlds.

  PYTHONPATH=. python experiments/2026-11-21_quickstart_four_levels/worlds.py

A world is the whole grid, the agent's place and direction, and the goal.
"""

import hashlib

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import goal_text
from agentgym_envs.babyai.world import make_world
from configs import quickstart


def indices(tasks) -> list[int]:
    """Returns the indices of the tasks selected by a `residues` selection."""
    residues = set(tasks.groups.values())
    return [i for i in range(tasks.start, tasks.stop) if i % tasks.modulus in residues]


def fingerprint(data_idx: int) -> str:
    """Returns a hash of the grid, agent and goal of a world."""
    world, _ = make_world(levels.task(data_idx))
    parts = (
        world.grid.encode().tobytes(),
        bytes(int(x) for x in world.agent_pos),
        bytes([int(world.agent_dir)]),
        goal_text(world.mission).encode(),
    )
    return hashlib.sha256(b"|".join(parts)).hexdigest()


def main() -> None:
    """Prints the number of distinct held-out worlds and their overlap with the training worlds."""
    c = quickstart.get_config()
    shown = [show.tasks for show in c.sft.demonstrations.values()]
    selections = [c.environments.babyai.train, *shown]
    trained = {fingerprint(i) for tasks in selections for i in indices(tasks)}
    held_out = [fingerprint(i) for i in indices(c.environments.babyai.eval)]
    common = sum(world in trained for world in held_out)
    print(f"held out: {len(held_out)}, of which distinct: {len(set(held_out))}")
    print(f"worlds trained on: {len(trained)}, of which held out: {common}")


if __name__ == "__main__":
    main()
