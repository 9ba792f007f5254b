r"""Scores a model on all held-out tasks of the embedded sites, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/webarena.py --workdir=DIR --model=M

Needs: the extra [web] and Chromium; no running server (the command starts the sites and a server);
memory for the model M. WebArena's own tasks need a deployment of WebArena
(:deployment=webarena.json, docs/webarena.md).
Result: not run yet.
Source: 15 turns as in AgentGym-RL, arXiv:2509.08755.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks; deployment (file)."""
    opt = common.parse(arg, smoke=False, limit=0, deployment="")
    tasks = common.held_out("template", opt.limit)
    options = dict(deployment=opt.deployment) if opt.deployment else {}
    environments = dict(webarena=common.environment(options=options, eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=15, turn_tokens=512, tokens=14848)
