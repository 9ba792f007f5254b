r"""RL of a policy of 0.5 million weights on TextCraft goals (README.md of this folder).

python -m agentgym_jax.train --config=experiments/2026-11-28_textcraft_rl/agents.py --workdir=runs/textcraft_start
python -m agentgym_jax.train --config=experiments/2026-11-28_textcraft_rl/agents.py:start=runs/textcraft_start --workdir=runs/textcraft

The first command can be stopped when RL has begun.
"""

import pathlib

from agentgym_jax.config.config_files import load_config
from agentgym_jax.configs import common

HERE = pathlib.Path(__file__).parent
BEFORE = HERE.parent / "2026-11-26_textcraft_warm_start"


def goals(name):
    """Returns the selection of the goals in a list of divide_training_goals.py."""
    return dict(kind="file", path=str(HERE / f"{name}.json"))


def get_config(arg=None):
    """Returns the config.

    Options: start=a run folder whose weights RL starts from; goals=rl|all, the goals of RL.
    """
    opt = common.parse(arg, {"goals": ("rl", "all")}, start="", goals="rl")
    c = load_config(f"{BEFORE / 'agents.py'}:exchanged=false,start={opt.start}")
    c.total_steps = 100
    if opt.goals == "rl":
        c.environments.textcraft.train = goals("rl")
    c.sampler.rows = 128
    c.sampling.temperature = 1.3
    c.rollout.tasks_per_step = 32
    c.learner.mini_batches = 1
    c.optimizer.learning_rate = 5e-4
    c.evaluation.update(every=10, samples=2, greedy=True)
    c.checkpoint.every = 10
    if not opt.start:
        for shown in c.sft.demonstrations.values():
            shown.tasks = goals("imitation")
    return c
