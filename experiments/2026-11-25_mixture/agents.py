r"""One small policy that trains on BabyAI, on a maze, or on both, and is evaluated on both.

python -m agentgym_jax.train --config=experiments/2026-11-25_mixture/agents.py:train=both --workdir=runs/both
"""

import importlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

alone = importlib.import_module("experiments.2026-11-25_two_environments.agents")

TRAIN = ("babyai", "maze", "both")


def get_config(arg=None):
    """Returns the config.

    Options: train=babyai|maze|both, the environments that the run trains on; start=a run folder.
    """
    opt = common.parse(arg, dict(train=TRAIN), train="both", start="")
    c = alone.get_config("train=babyai")
    c.total_steps = 90 if opt.train == "both" else 45
    # The maze is first, because BabyAI's pattern for numbers would split its cells.
    c.tokenizer.pretokenizer_pattern = f"{alone.WORDS['maze']}|{alone.WORDS['babyai']}"
    c.tokenizer.vocab_size = 1536
    # An environment with weight 0 is only evaluated.
    c.environments = {
        name: common.environment(weight=int(opt.train in (name, "both")), **tasks)
        for name, tasks in alone.TASKS.items()
    }
    c.evaluation.every = 15
    c.checkpoint.every = c.total_steps
    c.sft.steps = 650
    c.sft.demonstrations = {
        f"{name}_{kind}": shown
        for name in alone.TASKS
        for kind, shown in alone.demonstrations(name).items()
    }
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
