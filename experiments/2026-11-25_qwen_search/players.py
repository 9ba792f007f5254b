r"""Config for the players without weights, on the held-out questions of configs/rl/searchqa_qwen.py.

python -m agentgym_jax.evaluate --config=experiments/2026-11-25_qwen_search/players.py --model=random --workdir=runs/random
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import searchqa_qwen


def get_config(arg=None):
    """Returns the config. It has no options."""
    common.parse(arg)
    trained = searchqa_qwen.get_config()
    c = common.evaluation_base()
    for section in ("environments", "pool", "rollout", "evaluation"):
        c[section] = trained[section]
    c.environments.searchqa.train = {}
    return c
