"""Trains a policy. A second call with the same --workdir resumes the run.

  python -m agentgym_jax.train --config=configs/quickstart.py --workdir=runs/first
  python -m agentgym_jax.train --config=configs/quickstart.py:smoke --workdir=runs/smoke
  python -m agentgym_jax.train --config=configs/rl/bandit.py:algorithm=ppo --workdir=runs/bandit

Every value of a config can be changed: --config.optimizer.learning_rate=1e-4. To find values:

  python -m agentgym_jax.train --list                                # configs and algorithms
  python -m agentgym_jax.train --config=configs/quickstart.py --keys # keys; docs/config.md has all

Several processes, for example on the hosts of a TPU slice, execute the same command (docs/pods.md).
"""

if __name__ == "agentgym_jax.train":  # the package attribute `train` is the function
    raise ImportError(
        "the module agentgym_jax.train is a command (python -m agentgym_jax.train); to train from "
        "Python, write `from agentgym_jax import train` and call train(config, workdir)"
    )

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import sys

from absl import flags
from ml_collections import config_flags

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.api import USER_ERRORS, StopRequested, train
from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import given, launch
from agentgym_jax.mesh import cluster, processes
from agentgym_jax.telemetry.last_lines import resume_command

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, with its options after a colon.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Run folder; created, or resumed if it exists.")
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "Address HOST:PORT of process 0, for a run of several processes."
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes of the run.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Number of this process, from 0.")
_PLOTS = flags.DEFINE_bool("plots_at_end", True, "Draws the figures of plots/ at the end.")


def main(argv: list[str]) -> int:
    """Runs the job that the config describes; returns the exit status."""
    prepare()
    try:
        cluster.connect(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
        with processes.announcing_failures():
            run = train(_CONFIG.value, given(_WORKDIR), plots=_PLOTS.value)
    except StopRequested as stopped:
        sys.stderr.write(f"\n{stopped}; to resume: {resume_command()}\n")
        return stopped.exit_status
    if processes.is_writer():
        sys.stdout.write(f"{run.summary()}\n")
    return 0


if __name__ == "__main__":
    launch(main, "config", "workdir", algorithms=ALGORITHMS, errors=USER_ERRORS)
