r"""Config for the players without weights, on the held-out tasks of agents.py.

python -m agentgym_jax.evaluate --config=experiments/2026-11-25_two_environments/players.py:of=maze --model=random --workdir=runs/random
"""

import importlib

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: of=babyai|maze."""
    opt = common.parse(arg, of="babyai")
    agents = importlib.import_module("experiments.2026-11-25_two_environments.agents")
    trained = agents.get_config(f"train={opt.of}")
    c = common.evaluation_base()
    for section in ("environments", "pool", "rollout", "evaluation"):
        c[section] = trained[section]
    c.environments[opt.of].train = {}
    c.evaluation.every = 0
    c.evaluation.at_start = False
    return c
