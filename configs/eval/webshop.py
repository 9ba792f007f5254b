r"""Scores a model on 60 held-out tasks of WebShop's embedded catalogue, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/webshop.py --workdir=DIR --model=M
  python -m agentgym_jax.evaluate --config=configs/eval/webshop.py:data=FOLDER --workdir=DIR --model=M

Needs: nothing besides this project, or with data=FOLDER WebShop's data files; no running server (the
command starts one); memory for the model M.
Result: scores of the expert and the random agent are in docs/evaluation.md; no model has been
scored yet.
Source: 10 turns as in AgentEvol, arXiv:2406.04151.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks, 0 for all; data (folder)."""
    opt = common.parse(arg, smoke=False, limit=60, data="")
    tasks = common.held_out("kind", opt.limit)
    options = dict(data=opt.data) if opt.data else {}
    environments = dict(webshop=common.environment(options=options, eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=10, turn_tokens=200, tokens=14848)
