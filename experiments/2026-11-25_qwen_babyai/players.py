r"""Config for the players without weights, on the held-out tasks of configs/rl/babyai_qwen.py.

python -m agentgym_jax.evaluate --config=experiments/2026-11-25_qwen_babyai/players.py --model=random --workdir=runs/random
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import babyai_qwen


def get_config(arg=None):
    """Returns the config. It has no options."""
    common.parse(arg)
    trained = babyai_qwen.get_config()
    c = common.evaluation_base()
    for section in ("environments", "pool", "rollout", "evaluation"):
        c[section] = trained[section]
    c.environments.babyai.train = {}
    return c
