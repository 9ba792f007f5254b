r"""RL of a policy of 0.14 million weights on SciWorld's Lifespan tasks (README.md of this folder).

python -m agentgym_jax.train --config=experiments/2026-11-29_sciworld_rl/agents.py:start=runs/start --workdir=runs/sciworld
"""

import pathlib

from agentgym_jax.config.config_files import load_config
from agentgym_jax.configs import common

BEFORE = pathlib.Path(__file__).parents[1] / "2026-11-26_sciworld_horizons"


def get_config(arg=None):
    """Returns the config. Options: start=a run folder whose weights RL starts from."""
    opt = common.parse(arg, start="")
    c = load_config(f"{BEFORE / 'agents.py'}:horizon=long,start={opt.start}")
    c.total_steps = 60
    c.sampler.rows = 128
    c.rollout.tasks_per_step = 32
    c.evaluation.update(every=10, samples=2, greedy=True)
    c.checkpoint.every = 10
    return c
