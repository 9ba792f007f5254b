"""Divides goals of TextCraft that differ in a colour or a kind of wood into separate lists.

  PYTHONPATH=.:envs python experiments/2026-11-26_textcraft_warm_start/divide_goals.py

Goals such as `craft orange bed` and `craft pink bed` are a family. One member of a family in three is
held out; the others are demonstrated and trained on.
"""

import json
import pathlib
import random
import re

from agentgym_envs.textcraft.tasks import task_manifest

HERE = pathlib.Path(__file__).parent
COLOURS = (
    "light blue|light gray|white|orange|magenta|yellow|lime|pink|gray|cyan|purple|blue|brown|"
    "green|red|black"
)
WOODS = "dark oak|oak|spruce|birch|jungle|acacia|crimson|warped"
COLOURED = "stained glass pane|stained glass|bed|carpet|concrete powder|terracotta|wool".split("|")
WOODEN = "button|door|fence gate|fence|pressure plate|sign|slab|stairs|trapdoor|boat".split("|")


def families() -> dict[str, list[int]]:
    """Returns the indices of the goals of each family."""
    found: dict[str, list[int]] = {name: [] for name in (*COLOURED, *WOODEN)}
    for task in task_manifest():
        for words, names in ((COLOURS, COLOURED), (WOODS, WOODEN)):
            match = re.fullmatch(rf"(?:minecraft )?(?:{words}) ({'|'.join(names)})", task["goal"])
            if match and task["depth"] in (2, 3, 4):
                found[match[1]].append(task["data_idx"])
    return found


def main() -> None:
    """Writes the lists and prints their sizes."""
    rows: dict[str, list[tuple[int, str]]] = {"train": [], "held_out": []}
    rng = random.Random(0)
    for family, members in families().items():
        rng.shuffle(members)
        count = round(len(members) / 3)
        rows["held_out"] += [(index, family) for index in members[:count]]
        rows["train"] += [(index, family) for index in members[count:]]
    for name, listed in rows.items():
        lines = [
            json.dumps({"item_id": f"textcraft_{index}", "group": family})
            for index, family in sorted(listed)
        ]
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{name}: {len(listed)} goals")


if __name__ == "__main__":
    main()
