"""Writes the curves of the two recipes, read from the cookbook's logs, to one table.

python experiments/2026-11-27_tinker_recipes/curves.py LOG_SL LOG_RL OUT.csv
"""

import json
import pathlib
import sys

FIELDS = {
    "nll": "train_mean_nll",
    "reward": "env/all/reward/total",
    "format": "env/all/format",
    "correct": "env/all/correct",
    "kl_sample_train": "optim/kl_sample_train_v1",
}


def main() -> None:
    lines = ["recipe,step," + ",".join(FIELDS)]
    for recipe, folder in zip(("chat_sl", "math_rl"), sys.argv[1:3], strict=True):
        for text in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines():
            found = json.loads(text)
            values = [f"{found[f]:.4g}" if f in found else "" for f in FIELDS.values()]
            lines.append(",".join([recipe, str(found["step"]), *values]))
    pathlib.Path(sys.argv[3]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
