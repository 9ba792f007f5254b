r"""Qwen2.5-0.5B learns small rooms of ALFWorld on two CPU cores.

  python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn_qwen.py:model=DIR \
      --workdir=runs/alfworld_qwen
"""

import pathlib

from agentgym_jax.config.config_files import load_config
from agentgym_jax.configs import common

HERE = pathlib.Path(__file__).parent
IN_ALL_ROOMS = HERE.parent / "2026-11-27_new_environments/learn.py"
INSTRUCTIONS = (
    "You are in a room. Go to places, and open closed ones, until you see the thing of your task. "
    "Take it, and do the task with it. Answer with exactly one of the available actions."
)


def tasks(name):
    """Returns the selection of the tasks in a list."""
    return dict(kind="file", path=str(HERE / f"easy_tasks/{name}.json"))


def get_config(arg=None):
    """Returns the config. Options: model (weights); dtype; smoke."""
    known = dict(dtype=("float32", "bfloat16"))
    opt = common.parse(arg, known, model="", dtype="bfloat16", smoke=False)
    options = f"environment=alfworld,model={opt.model},dtype={opt.dtype}"
    c = load_config(f"{IN_ALL_ROOMS}:{options}" + (",smoke" if opt.smoke else ""))
    c.model.lora = common.lora(rank=4)
    c.environments.alfworld.train = tasks("train")
    c.environments.alfworld.eval = tasks("held_out")
    c.environments.alfworld.instructions = INSTRUCTIONS
    c.sampler.cache_length = c.sampling.max_tokens = c.learner.row_length = 1536
    c.sampler.decode_rows = 16
    c.horizon.turns = 8
    c.evaluation = dict(every=0, at_start=True, max_turns=8, samples=1, greedy=False)
    c.sft.row_length = 1536
    c.sft.demonstrations.expert.tasks = tasks("imitation")
    c.sft.demonstrations.expert.max_turns = 12
    c.sft.optimizer.learning_rate = 5e-4
    if not opt.smoke:
        c.total_steps = 10
        c.sft.steps = 30
    return c
