"""Runs a tiny job of every kind in one of several processes.

python -m tests.processes.every_job FOLDER [--coordinator=... --num_processes=... --process_id=...]
"""

import pathlib
import sys

from absl import flags

from agentgym_jax.config.sections import plain
from agentgym_jax.mesh import cluster
from agentgym_jax.training.job_kinds import run_job
from configs import common
from tests.integration import all_jobs


def jobs():
    """Yields name and config of each job."""
    for name, config in all_jobs.jobs():
        if name == "judge":  # each process would start its own judge, with another address
            continue
        yield name, config
        if name == "mixture":
            adapted = config.copy_and_resolve_references()
            with adapted.unlocked():
                adapted.model.lora = common.lora(2)
            yield "lora", adapted
        if name == "agentevol":
            imitation = config.copy_and_resolve_references()
            with imitation.unlocked():
                imitation.job = "sft"
                del imitation.agentevol
                imitation.total_steps = imitation.sft.steps
                imitation.evaluation.update(every=0, at_start=False)
            yield "sft", imitation


def main():
    """Runs all jobs on a mesh of all devices; the exit status is 0 if all succeed."""
    flags.FLAGS(sys.argv[:1])
    folder = pathlib.Path(sys.argv[1])
    options = dict(argument[2:].split("=") for argument in sys.argv[2:])
    if options:
        cluster.connect(
            options["coordinator"], int(options["num_processes"]), int(options["process_id"])
        )
    for name, config in jobs():
        config.mesh = dict(data=1, fsdp=-1, tensor=1, decode_tensor=0)
        run_job(plain(config), str(folder / name), plots=False)


if __name__ == "__main__":
    main()
