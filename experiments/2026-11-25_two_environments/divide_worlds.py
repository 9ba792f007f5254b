"""Divides the distinct worlds of four BabyAI levels into worlds for demonstrations, RL and evaluation.

  PYTHONPATH=.:envs:experiments/2026-11-21_quickstart_four_levels python experiments/2026-11-25_two_environments/divide_worlds.py

Different seeds of a level can give the same world. Each world is in one list only, with its first
seed. Writes `shown.json`, `train.json` and `held_out.json`.
"""

import json
import pathlib
import random

from worlds import fingerprint

HERE = pathlib.Path(__file__).parent
# Level: data_idx % 40.
LEVELS = {"Open": 11, "OpenRedBlueDoorsDebug": 14, "UnlockLocalDist": 24, "FindObjS7": 30}
SIZES = {"held_out": 30, "train": 150, "shown": 90}  # worlds per level
SEEDS = 320


def main() -> None:
    """Writes the lists and prints the number of worlds."""
    rows: dict[str, list[str]] = {name: [] for name in SIZES}
    for level, residue in LEVELS.items():
        first_seed: dict[str, int] = {}
        for index in range(residue, 40 * SEEDS, 40):
            first_seed.setdefault(fingerprint(index), index)
        worlds = list(first_seed.values())
        print(f"{level}: {len(worlds)} distinct worlds in {SEEDS} seeds")
        random.Random(0).shuffle(worlds)
        for name, size in SIZES.items():
            for index in sorted(worlds[:size]):
                rows[name].append(json.dumps({"item_id": f"babyai_{index}", "group": level}))
            del worlds[:size]
    for name, lines in rows.items():
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
