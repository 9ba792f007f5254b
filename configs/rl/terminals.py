r"""Trains a model with GRPO on the 160 training tasks of the terminal, by itself or in mini-swe-agent.

  python -m agentgym_jax.train --config=configs/rl/terminals.py:model=M --workdir=runs/terminals
  python -m agentgym_jax.train --config=configs/rl/terminals.py:model=M,agent=mini_swe --workdir=runs/mini_swe

Needs: bubblewrap 0.8 or newer, bash, git and python3; no running server (the command starts one);
the weights M and an accelerator. agent=mini_swe needs an interpreter with mini-swe-agent
(docs/terminals.md), which python=FILE names.
Result: only the smoke variants have been run.
Source: we chose the tasks and the values.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config.

    Options: model=M; agent=plain|mini_swe; python=interpreter of mini-swe-agent; tasks=a folder in
    Harbor's format; smoke (a tiny random policy).
    """
    opt = common.parse(arg, model="", agent="plain", python="python", tasks="", smoke=False)
    common.check_known("agent", opt.agent, ("plain", "mini_swe"))
    c = common.base()
    c.model.source = opt.model
    tasks = dict(kind="split", group_by="group", where={}, limit=0)
    c.environments = dict(
        terminals=common.environment(
            options=dict(tasks=opt.tasks),
            train=tasks | dict(split="train"),
            eval=tasks | dict(split="test"),
        )
    )
    c.env_server.workers = 4  # each runs one command at a time
    if opt.agent == "mini_swe":
        c.program = dict(command=f"{opt.python} -m agentgym_jax.programs.mini_swe")
    c.horizon = dict(kind="fixed", turns=10)
    c.evaluation.max_turns = 10
    c.sampling.max_turn_tokens = 512
    c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 8192
    if opt.smoke:
        common.smoke(c)
        c.env_server.workers = 1
        c.evaluation.at_start = False
        if opt.agent == "mini_swe":  # its prompt has 5,000 characters
            c.rollout.tasks_per_step = c.rollout.group_size = 2
            c.sampler.rows = 4
    return c
