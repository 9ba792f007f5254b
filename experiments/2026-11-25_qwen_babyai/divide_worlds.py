"""Divides the distinct worlds of three BabyAI levels into training and held-out worlds.

  PYTHONPATH=.:envs:experiments/2026-11-21_quickstart_four_levels python experiments/2026-11-25_qwen_babyai/divide_worlds.py

Different seeds of a level can give the same world. Each world is in one list only, with its first
seed. Writes `train.json` and `held_out.json` of configs/rl/babyai_qwen_tasks.
"""

import json
import pathlib
import random

from worlds import fingerprint

TASKS = pathlib.Path(__file__).parents[2] / "configs" / "rl" / "babyai_qwen_tasks"
LEVELS = {"GoToRedBallNoDists": 2, "GoToObjS6": 3, "OpenRedDoor": 12}  # level: data_idx % 40
SEEDS = 1100
# OpenRedDoor has 105 worlds. The schedule draws levels in proportion to their number of tasks.
HELD_OUT, TRAINED = 34, 71


def write(name: str, chosen: dict[str, list[int]]) -> None:
    """Writes a list of tasks, one per line."""
    rows = [
        json.dumps({"item_id": f"babyai_{index}", "group": level})
        for level, indices in chosen.items()
        for index in sorted(indices)
    ]
    (TASKS / f"{name}.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


def main() -> None:
    """Writes both lists and prints the number of worlds."""
    lists: dict[str, dict[str, list[int]]] = {"held_out": {}, "train": {}}
    for level, residue in LEVELS.items():
        first_seed: dict[str, int] = {}
        for index in range(residue, 40 * SEEDS, 40):
            first_seed.setdefault(fingerprint(index), index)
        worlds = list(first_seed.values())
        random.Random(0).shuffle(worlds)
        lists["held_out"][level] = worlds[:HELD_OUT]
        lists["train"][level] = worlds[HELD_OUT : HELD_OUT + TRAINED]
        print(f"{level}: {len(worlds)} distinct worlds in {SEEDS} seeds")
    for name, chosen in lists.items():
        write(name, chosen)


if __name__ == "__main__":
    main()
