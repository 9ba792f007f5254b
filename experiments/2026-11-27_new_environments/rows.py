r"""Scores a model on test tasks of one of the new environments (README.md of this folder).

  python -m agentgym_jax.evaluate --config=experiments/2026-11-27_new_environments/rows.py:environment=todo \
      --workdir=runs/rows_todo --model=DIR
"""

from agentgym_jax.configs import common

# Turn limits of configs/rl/tools.py and configs/eval/; fewer for ALFWorld and textarena.
TURNS = dict(
    weather=10,
    movie=12,
    academia=12,
    todo=15,
    sheet=15,
    sqlgym=1,
    alfworld=15,
    webshop=10,
    reasoning_gym=1,
    textarena=10,
)
GROUPS = dict(alfworld="task_type", webshop="kind", reasoning_gym="dataset", textarena="game")


def get_config(arg=None):
    """Returns the config. Options: environment; limit=N tasks."""
    opt = common.parse(arg, dict(environment=TURNS), environment="todo", limit=20)
    name = opt.environment
    group_by = GROUPS.get(name, "template")
    tasks = dict(kind="split", split="test", group_by=group_by, where={}, limit=opt.limit)
    c = common.evaluation_base()
    c.environments = {name: common.environment(eval=tasks)}
    c.evaluation = dict(every=0, at_start=False, max_turns=TURNS[name], samples=0, greedy=True)
    c.model.decode_dtype = "bfloat16"
    c.sampler.rows = 8
    c.sampling.max_turn_tokens = 120
    c.sampling.max_tokens = c.sampler.cache_length = 6144
    return c
