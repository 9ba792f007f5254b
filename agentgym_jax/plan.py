r"""Compiles a run for accelerators that are not here and shows memory, traffic and roofline time.

  python -m agentgym_jax.plan --config=configs/paper/textcraft.py:size=7b --topology=v5p:2x2x4 \
      --config.learner.micro_rows=16
  python -m agentgym_jax.plan --config=... --topology=v5e:4x4,v6e:4x4 --search    # proposes a mesh

Needs the extra [plan] for TPUs and [cuda] for GPUs, but no such device.
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import json
import pathlib
import sys
import time

import jax
from absl import flags
from ml_collections import config_flags

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.cli.startup import given, launch
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.planning.plan_report import Plan, format_plan, make_plan
from agentgym_jax.planning.search import compare_options, format_options, search_plan
from agentgym_jax.planning.topology import PlanError, Topology, parse_topology
from agentgym_jax.rl.rl_config import RLSettings, parse
from agentgym_jax.runs.atomic_files import RunFolderError, check_writable, disk_errors, write_atomic

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file of an RL job, with its options after a colon."
)
_TOPOLOGY = flags.DEFINE_list("topology", None, "Slices, such as v5p:2x2x4, v5e:4x4 or h100:8.")
_JSON = flags.DEFINE_string("json", None, "File for all numbers of all plans.")
_SEARCH = flags.DEFINE_bool("search", False, "Tries meshes and micro-batches; proposes the best.")
_COMPARE = flags.DEFINE_bool(
    "compare_options", False, "Compiles the slowest program with other compiler options too."
)


def main(argv: list[str]) -> int:
    """Prints the plan of each slice; returns 1 if a run does not fit or the input is wrong."""
    jax.config.update("jax_platforms", "cpu")
    config = plain(_CONFIG.value)
    if config.get("job") != "rl":
        raise PlanError(f"config.job is {config.get('job')!r}; plans support job 'rl'")
    settings = parse(config)
    slices = [parse_topology(name) for name in given(_TOPOLOGY)]
    numbers = pathlib.Path(_JSON.value).expanduser() if _JSON.value else None
    if numbers is not None:  # before the minutes that a plan takes
        check_writable(numbers)
    plans = [_plan(settings, config["mesh"], topology) for topology in slices]
    if numbers is not None:
        with disk_errors(numbers):
            numbers.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(numbers, json.dumps([plan.as_json() for plan in plans], indent=1) + "\n")
    return 0 if all(plan.fits for plan in plans) else 1


def _plan(settings: RLSettings, mesh: dict[str, int], topology: Topology) -> Plan:
    """Prints and returns the plan of one slice."""
    started = time.perf_counter()

    def progress(line: str) -> None:
        sys.stderr.write(f"{time.perf_counter() - started:5.0f} s  {line}\n")
        sys.stderr.flush()

    if _SEARCH.value:
        plan, values = search_plan(settings, topology, progress)
        chosen = " ".join(
            f"--config.{'learner' if key == 'micro_rows' else 'mesh'}.{key}={value}"
            for key, value in values.items()
        )
        sys.stdout.write(f"{format_plan(plan)}\nuse: {chosen}\n\n")
    else:
        plan = make_plan(settings, mesh, topology, progress)
        sys.stdout.write(f"{format_plan(plan)}\n\n")
    if _COMPARE.value:
        found = compare_options(settings, plan, progress)
        sys.stdout.write(f"{format_options(plan, found)}\n\n")
    return plan


if __name__ == "__main__":
    errors = (ConfigError, PlanError, RunFolderError)
    launch(main, "config", "topology", algorithms=ALGORITHMS, errors=errors)
