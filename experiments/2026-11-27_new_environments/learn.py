r"""Learning runs on two of the new environments (README.md of this folder).

  python -m agentgym_jax.train --config=experiments/2026-11-27_new_environments/learn.py:environment=alfworld \
      --workdir=runs/alfworld
  python -m agentgym_jax.train --config=experiments/2026-11-27_new_environments/learn.py:environment=sqlgym,model=DIR \
      --workdir=runs/sqlgym
"""

from agentgym_jax.configs import common, quickstart
from agentgym_jax.configs.rl import babyai_qwen

KINDS = ("pick_and_place_simple", "look_at_obj_in_light")


def alfworld(smoke):
    """Returns a run of the quickstart's tiny policy on two kinds of household tasks."""

    def tasks(split, limit=0):
        where = dict(task_type=KINDS)
        return dict(kind="split", split=split, group_by="task_type", where=where, limit=limit)

    c = quickstart.get_config("smoke" if smoke else None)
    c.environments = dict(
        alfworld=common.environment(train=tasks("train"), eval=tasks("test", 4 if smoke else 0))
    )
    c.tokenizer.vocab_size = 1024
    c.tokenizer.pretokenizer_pattern = r"[0-9]+|\n|, | "
    c.sampling.max_turn_tokens = 24
    # An observation lists the available actions, in about 150 tokens.
    c.sampling.max_tokens = c.sampler.cache_length = 3072
    c.model.architecture.max_position = 3072
    c.sampler.rows = 32
    c.learner.row_length = 3072
    c.learner.micro_rows = 1
    c.horizon = dict(kind="fixed", turns=3 if smoke else 10)
    c.evaluation.max_turns = 3 if smoke else 15
    show = dict(environment="alfworld", agent="mixed", epsilon=0.3, max_turns=12, seed=0)
    with c.unlocked():
        c.sft.demonstrations = dict(expert=dict(tasks=tasks("train", 20 if smoke else 200), **show))
    c.sft.row_length = 2048
    c.sft.rows = c.sft.micro_rows = 4
    return c


def sqlgym(model, dtype, smoke):
    """Returns a run of Qwen2.5-0.5B on questions about a database, one query each."""
    options = ",smoke" if smoke else ""
    c = babyai_qwen.get_config(f"model={model},dtype={dtype}{options}")

    def tasks(split):
        return dict(kind="split", split=split, group_by="template", where={}, limit=0)

    c.environments = dict(sqlgym=common.environment(train=tasks("train"), eval=tasks("test")))
    c.total_steps = 1 if smoke else 15
    c.sampler.buckets = ((256, 4), (384, 2))
    c.sampling.max_turn_tokens = 80
    c.rollout.tasks_per_step = 6
    c.rollout.max_parse_errors = 1
    c.horizon = dict(kind="fixed", turns=1)
    c.evaluation.max_turns = 1
    return c


def get_config(arg=None):
    """Returns the config.

    Options: environment=alfworld|sqlgym; model (weights, sqlgym); dtype; smoke.
    """
    known = dict(environment=("alfworld", "sqlgym"), dtype=("float32", "bfloat16"))
    opt = common.parse(arg, known, environment="alfworld", model="", dtype="bfloat16", smoke=False)
    if opt.environment == "alfworld":
        return alfworld(opt.smoke)
    return sqlgym(opt.model, opt.dtype, opt.smoke)
