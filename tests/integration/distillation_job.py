"""Runs a tiny distillation job twice: as a whole, and in two calls.

python distillation_job.py FOLDER TEACHER
"""

import pathlib
import sys

from agentgym_jax.config.sections import plain
from agentgym_jax.training.job_kinds import run_job
from configs import common
from tests.integration import all_jobs


def main():
    """Runs the jobs; the exit status is 0 if all succeed."""
    folder, teacher = pathlib.Path(sys.argv[1]), sys.argv[2]
    config = all_jobs.rl(
        common.distill(), ("coin",), rollout__reward="none", reference=dict(source=teacher)
    )
    for name, steps in (("whole", 2), ("halves", 1), ("halves", 2)):
        config.total_steps = steps
        run_job(plain(config), str(folder / name), plots=False)


if __name__ == "__main__":
    main()
