r"""Scores a model on the 100 held-out goals of TextCraft, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/textcraft.py --workdir=DIR --model=M

Needs: no running server (the command starts a TextCraft server); memory for the model M.
Result: not run yet.
Source: 30 turns and 100 test items as in AgentGym-RL, arXiv:2509.08755.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks."""
    opt = common.parse(arg, smoke=False, limit=100)
    tasks = common.held_out("depth", opt.limit)
    environments = dict(textcraft=common.environment(eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=30)
