r"""Qwen2.5-0.5B learns two kinds of ALFWorld tasks on one GPU, after imitation of an expert.

  python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn_gpu.py:model=DIR \
      --workdir=runs/alfworld_gpu
"""

import pathlib

from agentgym_jax.config.config_files import load_config
from agentgym_jax.configs import common

EXPERIMENTS = pathlib.Path(__file__).parents[1]
KINDS = ("look_at_obj_in_light", "pick_and_place_simple")


def tasks(split, limit=0):
    """Returns the selection of the tasks of two kinds in a split; all of them, or `limit`."""
    return dict(
        kind="split", split=split, group_by="task_type", where=dict(task_type=KINDS), limit=limit
    )


def get_config(arg=None):
    """Returns the config. Options: model (weights); steps of RL; warm steps of imitation; smoke."""
    opt = common.parse(arg, model="", steps=60, warm=300, smoke=False)
    options = f"environment=textcraft,model={opt.model},steps={opt.steps},warm={opt.warm}"
    smoke = ",smoke" if opt.smoke else ""
    c = load_config(f"{EXPERIMENTS / '2026-11-27_qwen_learns/learn.py'}:{options}{smoke}")
    small = load_config(str(EXPERIMENTS / "2026-11-28_alfworld/learn_qwen.py"))
    c.environments = small.environments
    c.environments.alfworld.train = tasks("train")
    c.environments.alfworld.eval = tasks("test", 1 if opt.smoke else 0)
    c.environments.alfworld.horizon = dict(kind="fixed", turns=14)
    c.environments.alfworld.eval_max_turns = 14
    if not opt.smoke:
        c.sampler.buckets = ((128, 16), (256, 8))  # an observation has about 120 tokens
    with c.unlocked():
        shown = dict(c.sft.demonstrations.textcraft) | dict(
            environment="alfworld", agent="mixed", epsilon=0.1, tasks=tasks("train", 300)
        )
        c.sft.demonstrations = dict(alfworld=shown)
        c.sft.row_length = 4096 if not opt.smoke else c.sft.row_length
    return c
