"""Plans of all sizes of Qwen2.5 on all slices of configs/paper/common.py, as a Markdown table.

python experiments/benchmarks/plan_table.py --out=DIR [--chips=v5p-16,h100-8] [--sizes=7b]

Compiling one plan takes some minutes. `DIR` keeps the plans, so a second call compiles only those
that are missing. TPU slices need the extra [plan], h100-8 the extra [cuda].
"""

import json
import pathlib
import subprocess
import sys

from absl import app, flags

from agentgym_jax.configs.paper.common import CHIPS, HUB
from agentgym_jax.configs.paper.textcraft import SHARED
from agentgym_jax.models.config import PRESETS
from agentgym_jax.models.policy import Policy
from agentgym_jax.planning.topology import CHIPS as LIMITS

OUT = flags.DEFINE_string("out", None, "Folder of the plans.", required=True)
SLICES = flags.DEFINE_list("chips", list(CHIPS), "Slices.")
SIZES = flags.DEFINE_list("sizes", list(HUB), "Sizes of the model.")
GIB = 2**30


def compile_plan(size, chips, folder):
    """Returns the plan of a size on a slice; None if the compiler of the slice is absent."""
    path = folder / f"{chips}_{size}.json"
    if not path.exists():
        config = f"configs/paper/textcraft.py:size={size},chips={chips}"
        command = [sys.executable, "-m", "agentgym_jax.plan", f"--config={config}"]
        command += [f"--topology={CHIPS[chips][0]}", f"--json={path}"]
        done = subprocess.run(command, capture_output=True, text=True)
        (folder / f"{chips}_{size}.log").write_text(done.stdout + done.stderr)
        if not path.exists():
            sys.stderr.write(f"{chips} {size}: {done.stderr.strip().splitlines()[-1]}\n")
            return None
    return json.loads(path.read_text())[0]


def model_flops_utilisation(plan, size):
    """Returns 6 x weights x tokens of an update, divided by what the chips could compute."""
    update = next(p for p in plan["programs"] if p["name"] == "update")
    episodes = SHARED["mini_batch"] * SHARED["samples"]
    weights = Policy(PRESETS[f"qwen2.5-{HUB[size].lower()}"]).num_parameters
    limits = LIMITS[plan["topology"].partition(":")[0]]
    available = update["time_s"] * plan["chips"] * limits.flops
    return 6 * weights * episodes * SHARED["tokens"] / available


def row(plan, size, chips):
    """Returns one line of the table."""
    update, decode = (
        next(p for p in plan["programs"] if p["name"].startswith(name))
        for name in ("update", "decode")
    )
    tensor, decode_tensor, rows = CHIPS[chips][2][size]
    tokens = int(decode["name"].split()[1])
    cells = [
        chips,
        size,
        tensor,
        decode_tensor,
        rows,
        f"{plan['peak'] / GIB:.1f} of {plan['memory'] / GIB:.1f}" + " (no)" * (not plan["fits"]),
        f"{update['peak'] / GIB:.1f}",
        f"{decode['time_s'] / tokens * 1e3:.1f}",
        f"{rows * tokens / decode['time_s']:,.0f}",
        f"{update['time_s']:.1f} ({update['bound']})",
        f"{100 * model_flops_utilisation(plan, size):.0f} %",
        f"{plan['step_s']:.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main(argv):
    """Compiles the missing plans and prints the table."""
    del argv
    folder = pathlib.Path(OUT.value)
    folder.mkdir(parents=True, exist_ok=True)
    header = "chips size tensor decode_tensor rows peak update_peak ms/token tokens/s update_s MFU step_s"
    names = [name.replace("_", " ") for name in header.split()]
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for chips in SLICES.value:
        for size in SIZES.value:
            if size in CHIPS[chips][2]:
                plan = compile_plan(size, chips, folder)
                if plan is not None:
                    print(row(plan, size, chips), flush=True)


if __name__ == "__main__":
    app.run(main)
