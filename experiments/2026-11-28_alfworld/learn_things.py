r"""A policy from scratch learns the ALFWorld tasks of six things.

python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn.py:updates=900 --workdir=runs/alfworld
python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn_things.py:start=runs/alfworld \
    --workdir=runs/alfworld_things

python -m agentgym_jax.train --workdir=runs/alfworld_things_rl \
    --config=experiments/2026-11-28_alfworld/learn_things.py:start=runs/alfworld_things,updates=0

The first command imitates tasks of all things and can be stopped when RL has begun, the second after twelve steps of RL.
"""

import pathlib

from agentgym_jax.config.config_files import load_config
from agentgym_jax.configs import common

HERE = pathlib.Path(__file__).parent
MORE_TASKS = 60_000


def listed(name):
    """Returns the selection of the tasks in a list of choose_things.py."""
    return dict(kind="file", path=str(HERE / "six_things" / f"{name}.json"))


def get_config(arg=None):
    """Returns the config.

    Options: start=a run folder; updates=imitation updates, 0 for the third attempt at RL.
    """
    opt = common.parse(arg, start="", updates="300")
    options = f"updates={opt.updates},train_on=actions,start={opt.start}"
    c = load_config(f"{HERE / 'learn.py'}:{options}")
    c.total_steps = 24
    environment = c.environments.alfworld
    with c.unlocked():
        environment.options.more_tasks = MORE_TASKS
        environment.train, environment.eval = listed("train"), listed("held_out")
        c.sft.demonstrations.expert.tasks = listed("imitation")
    c.evaluation.every = 8
    if opt.updates == "0":
        del c.sft
        c.rollout.tasks_per_step = 32
        c.learner.mini_batches = 1
        c.sampling.temperature = 1.3
        c.total_steps = 100
        c.evaluation.every = 10
    return c
