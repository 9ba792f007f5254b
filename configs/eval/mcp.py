r"""Scores an agent on the tasks of an MCP server, whose tools the model's chat template writes.

  python -m agentgym_jax.evaluate --config=configs/eval/mcp.py --workdir=DIR --model=M \
      --config.environments.mcp.options.command="python my_server.py" \
      --config.environments.mcp.options.tasks=tasks.jsonl

Without the two options, the tasks are those of a small shop that is part of the project.
Needs: nothing running; memory for the model M, whose chat template must support tools.
Result: the expert solves all 7 tasks of the shop.
Source: the Model Context Protocol, version 2025-06-18.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N held-out tasks, 0 for all."""
    opt = common.parse(arg, smoke=False, limit=0)
    tasks = common.held_out("split", opt.limit)
    options = dict(command="", tasks="")
    environments = dict(mcp=common.environment(options=options, eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=20, turn_tokens=400, tokens=8192)
