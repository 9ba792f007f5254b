r"""Qwen2.5-0.5B learns SciWorld's Lifespan tasks on one GPU, after imitation of an expert.

  python -m agentgym_jax.train --config=experiments/2026-11-29_sciworld_rl/learn_gpu.py:model=DIR \
      --workdir=runs/sciworld_gpu

The simulator needs minutes for the demonstrations. With `file`, they come from the data/ of an earlier run.
"""

import importlib
import pathlib

from agentgym_jax.config.config_files import load_config
from agentgym_jax.configs import common

EXPERIMENTS = pathlib.Path(__file__).parents[1]
sciworld = importlib.import_module("experiments.2026-11-26_sciworld_horizons.agents")


def get_config(arg=None):
    """Returns the config.

    Options: model (weights); file (demonstrations); steps of RL; warm steps of imitation; smoke.
    """
    opt = common.parse(arg, model="", file="", steps=60, warm=60, smoke=False)
    options = f"environment=textcraft,even,model={opt.model},steps={opt.steps},warm={opt.warm}"
    smoke = ",smoke" if opt.smoke else ""
    c = load_config(f"{EXPERIMENTS / '2026-11-27_qwen_learns/learn.py'}:{options}{smoke}")
    c.environments = dict(
        sciworld=common.environment(
            train=sciworld.tasks("train"),
            eval=sciworld.tasks("held_out"),
            eval_max_turns=sciworld.LONG,
            horizon=dict(kind="fixed", turns=sciworld.LONG),
        )
    )
    c.rollout.failed_turn_penalty = 0.0
    if opt.smoke:
        c.environments.sciworld.eval = dict(kind="suite", subtasks=(), limit=1)
        c.sft.row_length = 4096  # a token is a byte
    else:
        c.sampler.buckets = ((64, 32), (256, 8))  # rooms have about 150 tokens
    with c.unlocked():
        c.sft.demonstrations = {} if opt.file else sciworld.demonstrations()
        c.sft.files = (opt.file,) if opt.file else ()
    return c
