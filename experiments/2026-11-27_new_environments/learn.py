r"""Learning runs on two of the new environments (README.md of this folder).

  python -m agentgym_jax.train --config=experiments/2026-11-27_new_environments/learn.py:environment=alfworld,model=DIR \
      --workdir=runs/alfworld
  python -m agentgym_jax.train --config=experiments/2026-11-27_new_environments/learn.py:environment=sqlgym,model=DIR \
      --workdir=runs/sqlgym
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import babyai_qwen

INSTRUCTIONS = (
    "You are in a room and look at a thing in the light of a lamp. Go to places, and open closed ones, "
    "until you see the thing. Take it, go to the place of the lamp, and use the lamp while you carry "
    "the thing. Every turn you get an observation and the available actions. Answer with exactly one "
    "of the available actions and nothing else."
)


def alfworld(model, dtype, smoke):
    """Returns a run of Qwen2.5-0.5B on one kind of household task, after 24 imitation steps."""
    options = ",smoke" if smoke else ""
    c = babyai_qwen.get_config(f"model={model},dtype={dtype}{options}")

    def tasks(limit=0, split="train"):
        where = dict(task_type=("look_at_obj_in_light",))
        return dict(kind="split", split=split, group_by="task_type", where=where, limit=limit)

    c.environments = dict(
        alfworld=common.environment(
            train=tasks(),
            eval=tasks(2 if smoke else 0, "test"),
            instructions=INSTRUCTIONS,
            action_format="react_or_bare",
            options=dict(expert="searches"),
        )
    )
    c.total_steps = 1 if smoke else 12
    # An observation lists the available actions, in about 100 tokens.
    c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 2048
    c.sampler.buckets = ((128, 4), (256, 2))
    c.learner.micro_rows = 1
    c.model.remat = "block"  # rows of 2,048 tokens need 12 GiB without it
    c.horizon = dict(kind="fixed", turns=10)
    c.evaluation.max_turns = 10
    shown = dict(environment="alfworld", agent="mixed", epsilon=0.1, max_turns=14, seed=0)
    with c.unlocked():
        c.sft = dict(
            steps=1 if smoke else 24,
            rows=1,
            micro_rows=1,
            row_length=2048,
            weighting="token_mean",
            train_on="actions",
            too_long="truncate",
            bad="fatal",
            files=(),
            demonstrations=dict(expert=dict(tasks=tasks(60), **shown)),
            optimizer=dict(c.optimizer) | dict(learning_rate=3e-4),
        )
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

    Options: environment=alfworld|sqlgym; model (weights); dtype; smoke.
    """
    known = dict(environment=("alfworld", "sqlgym"), dtype=("float32", "bfloat16"))
    opt = common.parse(arg, known, environment="alfworld", model="", dtype="bfloat16", smoke=False)
    make = alfworld if opt.environment == "alfworld" else sqlgym
    return make(opt.model, opt.dtype, opt.smoke)
