r"""Scores a model on SciWorld: 200 tasks of ScienceWorld's test set, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/sciworld.py --workdir=DIR --model=M

Needs: the extra [sciworld] and Java; no running server (the command starts one); memory for the
model M.
Result: not run yet.
Source: 30 turns and 200 items as in AgentGym-RL, arXiv:2509.08755. AgentGym-RL's test items overlap
its training tasks; the test items here do not.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks."""
    opt = common.parse(arg, smoke=False, limit=200)
    tasks = common.held_out("topic", opt.limit)
    environments = dict(sciworld=common.environment(eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=30)
