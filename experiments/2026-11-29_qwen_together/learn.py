r"""Qwen2.5-0.5B learns BabyAI, deep search and SQL in one run (README.md of this folder).

python -m agentgym_jax.train --config=experiments/2026-11-29_qwen_together/learn.py:model=DIR --workdir=runs/together
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import babyai_qwen, searchqa_qwen


def questions(**groups):
    """Returns questions of SQL's six training templates, divided by their index modulo 3."""
    return dict(kind="residues", start=0, stop=90, modulus=3, groups=groups)


def environments():
    """Returns the entries; no held-out task is a training task."""
    return dict(
        babyai=common.environment(
            train=babyai_qwen.tasks("train"),
            eval=babyai_qwen.tasks("held_out"),
            eval_max_turns=6,
            horizon=dict(kind="stepwise", turns=(4, 6), boundaries=(6,)),
            instructions=babyai_qwen.INSTRUCTIONS,
            action_format="react_or_bare",
        ),
        searchqa=common.environment(
            options=dict(topk=1),  # short observations
            train=searchqa_qwen.tasks("train"),
            eval=searchqa_qwen.tasks("test", limit=60),
            eval_max_turns=4,
            horizon=dict(kind="fixed", turns=4),
            instructions=searchqa_qwen.INSTRUCTIONS,
        ),
        sqlgym=common.environment(
            train=questions(trained=1, trained_too=2),
            eval=questions(held_out=0),
            eval_max_turns=1,
            horizon=dict(kind="fixed", turns=1),
        ),
    )


def get_config(arg=None):
    """Returns the config. Options: model (a Hugging Face directory); smoke (a tiny random policy)."""
    opt = common.parse(arg, model="Qwen/Qwen2.5-0.5B-Instruct", smoke=False)
    c = babyai_qwen.get_config(f"model={opt.model},dtype=bfloat16")
    c.environments = environments()
    c.total_steps = 14
    c.sampler.rows = 96
    c.sampler.buckets = ((64, 4), (128, 2), (384, 1))
    c.sampling.max_turn_tokens = 80
    c.rollout.tasks_per_step = 12
    c.rollout.max_parse_errors = 3
    c.rollout.failed_turn_penalty = 0.1
    if opt.smoke:
        common.smoke(c)
        c.model.lora = common.lora(rank=4)
        short = dict(kind="residues", start=0, stop=40, modulus=40, groups=dict(GoToObjS6=3))
        c.environments.babyai.eval = short
        c.environments.sqlgym.eval.stop = 6
    return c
