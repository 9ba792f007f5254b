r"""Scores a model on 90 BabyAI tasks, as many as AgentGym evaluates, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/babyai.py --workdir=DIR --model=M

Needs: no running server (the command starts a BabyAI server); memory for the model M.
Result: not run yet.
Source: 20 turns and 90 test items as in AgentGym-RL, arXiv:2509.08755.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks."""
    opt = common.parse(arg, smoke=False, limit=90)
    tasks = common.held_out("family", opt.limit)
    environments = dict(babyai=common.environment(eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=20)
