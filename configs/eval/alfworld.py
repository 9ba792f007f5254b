r"""Scores a model on 60 held-out tasks of ALFWorld's generated houses, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/alfworld.py --workdir=DIR --model=M
  python -m agentgym_jax.evaluate --config=configs/eval/alfworld.py:games=FOLDER --workdir=DIR --model=M

Needs: the package alfworld (extra [alfworld]), or with games=FOLDER ALFWorld's downloaded games; no
running server (the command starts one); memory for the model M.
Result: scores of the expert and the random agent are in docs/evaluation.md; no model has been
scored yet.
Source: 30 turns as in AgentEvol, arXiv:2406.04151.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks, 0 for all; games (folder)."""
    opt = common.parse(arg, smoke=False, limit=60, games="")
    tasks = common.held_out("task_type", opt.limit)
    options = dict(games=opt.games) if opt.games else {}
    environments = dict(alfworld=common.environment(options=options, eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=30, turn_tokens=200, tokens=14848)
