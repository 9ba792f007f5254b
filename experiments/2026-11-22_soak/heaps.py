r"""Analyses the memory of a run that saves every second step, in the heaps of the C library and of
Python.

  MALLOC_ARENA_MAX=16 nice python experiments/2026-11-22_soak/heaps.py --workdir=runs/heaps \
      --config=experiments/2026-11-22_soak/config.py:steps=240,transport=inprocess,loggers=none \
      --config.checkpoint.every=2 --config.evaluation.every=0 --config.evaluation.at_start=False \
      --config.sft.steps=10 --noplots_at_end [--counters] [--nosaves]

Writes runs/heaps/heaps.jsonl with a line per step, and prints by how much each number grows per
save in the second half. The script supports only glibc. Without MALLOC_ARENA_MAX the run has the
usual number of heaps.
"""

import ctypes
import json
import pathlib
import re
import sys

import numpy as np
from absl import flags
from ml_collections import config_flags

from agentgym_jax import train
from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import launch
from agentgym_jax.jobs.run import Run
from agentgym_jax.learner import checkpoint

MIB = 2.0**20
SAVES_PER_STEP = 0.5
CONFIG = config_flags.DEFINE_config_file("config", None, "Config file.", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", None, "Run folder.")
COUNTERS = flags.DEFINE_bool("counters", False, "Whether Orbax reads TensorStore's counters.")
SAVES = flags.DEFINE_bool("saves", True, "Whether to write checkpoints.")


def heaps(scratch: pathlib.Path) -> dict[str, float]:
    """Returns the MiB that the C library holds, the part of it in use, and the number of heaps."""
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.fclose.argtypes = [ctypes.c_void_p]
    file = library.fopen(str(scratch).encode(), b"w")
    library.malloc_info(0, file)
    library.fclose(file)
    each, _, all_of_them = scratch.read_text().rpartition("</heap>")
    sizes = dict(re.findall(r'type="(\w+)"[^/]* size="(\d+)"', all_of_them))
    held, free = int(sizes["current"]), int(sizes["fast"]) + int(sizes["rest"])
    return {"held": held / MIB, "used": (held - free) / MIB, "heaps": each.count("<heap ")}


def resident() -> float:
    """Returns the resident memory of this process in MiB."""
    text = pathlib.Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Rss:\s+(\d+)", text)[1]) / 1024


def grown(lines: list[dict], name: str) -> tuple[float, float]:
    """Returns the growth of a number per save in the second half of the run, and its standard
    error.
    """
    half = lines[len(lines) // 2 :]
    (slope, _), covariance = np.polyfit(
        [x["step"] for x in half], [x[name] for x in half], 1, cov=True
    )
    return slope / SAVES_PER_STEP, float(np.sqrt(covariance[0, 0])) / SAVES_PER_STEP


def main(argv: list[str]) -> int:
    """Runs the config and records the memory after every step."""
    folder = pathlib.Path(WORKDIR.value)
    prepare()
    lines: list[dict] = []
    plain_log = Run.log_step

    def log_step(run, step, metrics):
        plain_log(run, step, metrics)
        line = {"step": step, "resident": resident(), **heaps(folder / "malloc_info.xml")}
        lines.append(line | {"python_blocks": sys.getallocatedblocks()})

    Run.log_step = log_step
    if COUNTERS.value:
        checkpoint._leave_counters_alone = lambda: None
    if not SAVES.value:
        checkpoint.Checkpoints.save = lambda *args, **kwargs: None
    train(CONFIG.value, folder)
    (folder / "heaps.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    for name in ("resident", "held", "used", "heaps", "python_blocks"):
        slope, error = grown(lines, name)
        ends = f"{lines[0][name]:12.1f}{lines[-1][name]:12.1f}"
        sys.stdout.write(f"{name:14}{ends}{slope:12.4f} +- {error:.4f} a save\n")
    return 0


if __name__ == "__main__":
    launch(main, "config", "workdir")
