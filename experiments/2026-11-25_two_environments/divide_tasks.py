"""Divides the worlds of four BabyAI levels and the walks of the maze into separate lists.

  PYTHONPATH=.:envs:experiments/2026-11-21_quickstart_four_levels python experiments/2026-11-25_two_environments/divide_tasks.py

Writes the lists for demonstrations (`shown`), RL (`train`) and evaluation (`held_out`). Different
seeds of a BabyAI level can give the same world. Each world is in one list only, with its first
seed. A walk of the maze is a start and a goal at least two moves apart.
"""

import json
import pathlib
import random

from worlds import fingerprint

from agentgym_envs.maze.served import make_served_environment

HERE = pathlib.Path(__file__).parent
# Level: data_idx % 40.
LEVELS = {"Open": 11, "OpenRedBlueDoorsDebug": 14, "UnlockLocalDist": 24, "FindObjS7": 30}
WORLDS = {"held_out": 30, "train": 150, "shown": 90}  # per level
SEEDS = 320
WALKS = {"held_out": 120, "shown": 100}  # all others are trained on


def write(name: str, rows: list[dict[str, str]]) -> None:
    """Writes a list of tasks, one per line."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def divide_babyai() -> None:
    """Writes the lists of BabyAI and prints the number of worlds."""
    rows: dict[str, list[dict[str, str]]] = {name: [] for name in WORLDS}
    for level, residue in LEVELS.items():
        first_seed: dict[str, int] = {}
        for index in range(residue, 40 * SEEDS, 40):
            first_seed.setdefault(fingerprint(index), index)
        worlds = list(first_seed.values())
        print(f"{level}: {len(worlds)} distinct worlds in {SEEDS} seeds")
        random.Random(0).shuffle(worlds)
        for name, size in WORLDS.items():
            chosen = sorted(worlds[:size])
            rows[name] += [{"item_id": f"babyai_{i}", "group": level} for i in chosen]
            del worlds[:size]
    for name, listed in rows.items():
        write(f"babyai_{name}", listed)


def divide_maze() -> None:
    """Writes the lists of the maze."""
    walks = [task for task in make_served_environment().tasks() if task["distance"] >= 2]
    random.Random(0).shuffle(walks)
    for name in (*WALKS, "train"):
        chosen = walks[: WALKS.get(name)]
        rows = [
            {"item_id": f"maze_{task['data_idx']}", "group": f"distance {task['distance']}"}
            for task in sorted(chosen, key=lambda task: task["data_idx"])
        ]
        write(f"maze_{name}", rows)
        del walks[: len(chosen)]


if __name__ == "__main__":
    divide_babyai()
    divide_maze()
