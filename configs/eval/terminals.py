r"""Scores a model on the 40 held-out terminal tasks by recipe, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/terminals.py --workdir=DIR --model=M

Needs: bubblewrap 0.8 or newer (apt-get install bubblewrap), bash, git and python3 on this machine;
no running server (the command starts one); memory for the model M.
Result: scores of the expert and the random agent are in docs/terminals.md; no model has been scored
yet.
Source: we chose the tasks; their format is that of Harbor.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config.

    Options: smoke (two tasks); limit=N tasks, 0 for all; tasks=a folder in Harbor's format.
    """
    opt = common.parse(arg, smoke=False, limit=0, tasks="")
    tasks = common.held_out("group", opt.limit)
    options = dict(tasks=opt.tasks)
    environments = dict(terminals=common.environment(options=options, eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=20, turn_tokens=512, tokens=16384)
