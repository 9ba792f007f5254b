r"""The suite's items of BabyAI, under the conditions of configs/rl/babyai_qwen.py.

python -m agentgym_jax.evaluate --config=experiments/2026-11-26_qwen_suite/suite.py --model=runs/qwen --workdir=runs/trained --config.sampling.max_tokens=2048 --config.sampler.cache_length=2048

The command repeats the token limits, because the evaluation of a run folder otherwise uses those of
the run.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.eval import suite
from agentgym_jax.configs.rl import babyai_qwen


def get_config(arg=None):
    """Returns the config. It has no options."""
    common.parse(arg)
    trained = babyai_qwen.get_config("dtype=bfloat16")
    c = suite.get_config("environments=babyai")
    for section in ("sampler", "sampling", "pool", "rollout"):
        c[section] = trained[section]
    for key in ("instructions", "action_format"):
        c.environments.babyai[key] = trained.environments.babyai[key]
    for key in ("dtype", "decode_dtype"):
        c.model[key] = trained.model[key]
    # 20 turns need more tokens than training allows.
    c.sampler.cache_length = c.sampling.max_tokens = 2048
    return c
