"""Runs a tiny job of every kind with adapters.

python lora_jobs.py FOLDER BASE

BASE is the Hugging Face directory of the frozen weights. Jobs `mixture` and `ppo` run again in two calls.
"""

import pathlib
import sys

from agentgym_jax.config.sections import plain
from agentgym_jax.training.job_kinds import run_job
from configs import common
from tests.integration import all_jobs


def jobs(base):
    """Yields name and config of each job."""
    for name, config in all_jobs.jobs():
        if name == "judge":
            continue
        for decode in ("merged", "unmerged") if name == "mixture" else ("merged",):
            c = config.copy_and_resolve_references()
            with c.unlocked():
                c.model.source, c.model.architecture = base, {}
                c.model.lora = common.lora(2, decode=decode)
                c.tokenizer.source = "model"
            yield name if decode == "merged" else f"{name} {decode}", c


def main():
    """Runs all jobs; the exit status is 0 if all succeed."""
    folder, base = pathlib.Path(sys.argv[1]), sys.argv[2]
    for name, config in jobs(base):
        run_job(plain(config), str(folder / name), plots=False)
        if name in ("mixture", "ppo"):
            for steps in (1, 2):
                config.total_steps = steps
                halves = str(folder / f"{name} in halves")
                run_job(plain(config), halves, plots=False)


if __name__ == "__main__":
    main()
