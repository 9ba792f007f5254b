r"""Qwen2.5-0.5B learns small rooms of ALFWorld on two CPU cores.

  python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn_qwen.py:model=DIR \
      --workdir=runs/alfworld_qwen
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import babyai_qwen

TASKS = pathlib.Path(__file__).parent / "easy_tasks"
INSTRUCTIONS = (
    "You are in a room. Go to places, and open closed ones, until you see the thing of your task. "
    "Take it, and do the task with it. Answer with exactly one of the available actions."
)


def tasks(name):
    """Returns the selection of the tasks in a list."""
    return dict(kind="file", path=str(TASKS / f"{name}.json"))


def get_config(arg=None):
    """Returns the config. Options: model (weights); dtype; smoke."""
    known = dict(dtype=("float32", "bfloat16"))
    opt = common.parse(arg, known, model="", dtype="bfloat16", smoke=False)
    options = ",smoke" if opt.smoke else ""
    c = babyai_qwen.get_config(f"model={opt.model},dtype={opt.dtype}{options}")
    c.model.lora = common.lora(rank=4)
    c.model.remat = "block"
    c.environments = dict(
        alfworld=common.environment(
            train=tasks("train"),
            eval=tasks("held_out"),
            instructions=INSTRUCTIONS,
            action_format="react_or_bare",
            options=dict(expert="searches"),
        )
    )
    c.total_steps = 1 if opt.smoke else 10
    c.sampler.cache_length = c.sampling.max_tokens = c.learner.row_length = 1536
    c.sampler.buckets = ((128, 4), (256, 2))
    c.sampler.decode_rows = 16
    c.learner.micro_rows = 1
    c.horizon = dict(kind="fixed", turns=8)
    c.evaluation = dict(every=0, at_start=True, max_turns=8, samples=1, greedy=False)
    with c.unlocked():
        c.sft = dict(
            steps=1 if opt.smoke else 30,
            rows=1,
            micro_rows=1,
            row_length=1536,
            weighting="token_mean",
            train_on="actions",
            too_long="truncate",
            bad="fatal",
            files=(),
            demonstrations=dict(
                expert=dict(
                    environment="alfworld",
                    agent="mixed",
                    epsilon=0.1,
                    max_turns=12,
                    seed=0,
                    tasks=tasks("imitation"),
                )
            ),
            optimizer=dict(c.optimizer) | dict(learning_rate=5e-4),
        )
    return c
