"""Distinct worlds of OpenRedDoor, half of them for training and half held out.

  PYTHONPATH=. python experiments/2026-11-22_every_algorithm/worlds.py

The level has two rooms (one row, two columns) and few distinct worlds. If tasks were divided by
seed only, the evaluation would repeat trained worlds. A world is the whole grid, the agent's place
and direction, and the goal. Writes `train.json` and `held_out.json` (one seed per world) and
`shown.json` (all seeds of the training worlds, for the warm start) of configs/rl/two_rooms_tasks.
Prints the agents' success on these worlds.
"""

import hashlib
import json
import pathlib
import random

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import goal_text
from agentgym_envs.babyai.served import make_served_environment
from agentgym_envs.babyai.world import make_world

TASKS = pathlib.Path(__file__).parents[2] / "configs" / "rl" / "two_rooms_tasks"
LEVEL, LEVELS, SEEDS, TURNS = 12, 40, 1200, 4


def fingerprint(data_idx: int) -> str:
    """Returns a hash of the grid, agent and goal of a world."""
    world, _ = make_world(levels.task(data_idx))
    assert (world.num_rows, world.num_cols) == (1, 2)
    parts = (
        world.grid.encode().tobytes(),
        bytes(int(x) for x in world.agent_pos),
        bytes([int(world.agent_dir)]),
        goal_text(world.mission).encode(),
    )
    return hashlib.sha256(b"|".join(parts)).hexdigest()


def solved(data_idx: int, choose) -> bool:
    """Returns True if an agent solves a world in TURNS turns."""
    world = make_served_environment().factory()
    world.reset(data_idx)
    for _ in range(TURNS):
        result = world.step(choose(world))
        if result.done:
            return result.score > 0
    return False


def main() -> None:
    """Writes the three files and prints the numbers of worlds and the agents' success."""
    seeds: dict[str, list[int]] = {}
    for seed in range(SEEDS):
        data_idx = LEVELS * seed + LEVEL
        seeds.setdefault(fingerprint(data_idx), []).append(data_idx)
    worlds = list(seeds.values())
    random.Random(0).shuffle(worlds)
    half = len(worlds) // 2
    shown = [i for world in worlds[:half] for i in world]
    for name, chosen in (
        ("shown", shown),
        ("train", [world[0] for world in worlds[:half]]),
        ("held_out", [world[0] for world in worlds[half:]]),
    ):
        ids = [f"babyai_{i}" for i in sorted(chosen)]
        (TASKS / f"{name}.json").write_text(json.dumps(ids, indent=0) + "\n")
        if name == "shown":
            continue
        expert = sum(solved(i, lambda world: world.expert_action()) for i in chosen)
        rng = random.Random(1)
        chance = sum(
            solved(i, lambda world, rng=rng: rng.choice(world.valid_actions()))
            for i in chosen
            for _ in range(20)
        )
        print(f"{name}: {len(chosen)} worlds, expert {expert}, random {chance / 20:.1f}")


if __name__ == "__main__":
    main()
