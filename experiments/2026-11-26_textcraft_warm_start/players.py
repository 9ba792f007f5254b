r"""Config for the players without weights, on the held-out goals of agents.py.

python -m agentgym_jax.evaluate --config=experiments/2026-11-26_textcraft_warm_start/players.py --model=random --workdir=runs/random
"""

import importlib

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. It has no options."""
    common.parse(arg)
    agents = importlib.import_module("experiments.2026-11-26_textcraft_warm_start.agents")
    trained = agents.get_config()
    c = common.evaluation_base()
    for section in ("environments", "pool", "rollout", "evaluation"):
        c[section] = trained[section]
    c.environments.textcraft.train = {}
    c.evaluation.every = 0
    c.evaluation.at_start = False
    return c
