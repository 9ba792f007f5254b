r"""Plays the expert that searches on all tasks of two kinds, with at most 8 turns (choose_tasks.py)."""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.eval import held_out

KINDS = ("look_at_obj_in_light", "pick_and_place_simple")


def get_config(arg=None):
    """Returns the config. Options: split=train|test."""
    opt = common.parse(arg, dict(split=("train", "test")), split="train")
    c = held_out.get_config(f"of={pathlib.Path(__file__).with_name('learn_qwen.py')}")
    c.environments.alfworld.eval = dict(
        kind="split", split=opt.split, group_by="task_type", where=dict(task_type=KINDS), limit=0
    )
    c.evaluation.samples = 1
    c.evaluation.max_turns = 8
    return c
