r"""Scores a model on the questions of sqlgym that the eight steps of a run of learn.py did not draw.

  python -m agentgym_jax.evaluate --config=experiments/2026-11-27_new_environments/unseen.py:seed=0 \
      --workdir=runs/unseen --model=runs/sqlgym
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.eval import held_out

HERE = pathlib.Path(__file__).parent


def get_config(arg=None):
    """Returns the config. Options: seed=0|1, the seed of the run."""
    opt = common.parse(arg, dict(seed=("0", "1")), seed="0")
    c = held_out.get_config(f"of={HERE / 'learn.py'}:environment=sqlgym")
    questions = str(HERE / f"unseen_questions_seed{opt.seed}.json")
    c.environments.sqlgym.eval = dict(kind="file", path=questions)
    return c
