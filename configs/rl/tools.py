r"""Trains one Qwen2.5 model with GRPO on the tool environments: weather, films, papers, lists, tables.

  python -m agentgym_jax.train --config=configs/rl/tools.py:size=3b --workdir=runs/tools \
      --config.mesh.fsdp=-1

Needs: no running server (the command starts one for each environment); accelerators
(configs/paper/common.py).
Result: only the smoke variant has been run.
Source: batch size and number of samples of configs/paper/textcraft.py; turn limits of AgentGym,
arXiv:2406.04151.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import textcraft
from agentgym_jax.configs.rl.mixture import plain

TURNS = dict(weather=10, movie=12, academia=12, todo=15, sheet=15, sqlgym=1)


def get_config(arg=None):
    """Returns the config.

    Options: environments=weather+movie+academia+todo+sheet+sqlgym, any of them;
    size=0p5b|1p5b|3b|7b; smoke (a tiny random policy).
    """
    opt = common.parse(arg, environments="+".join(TURNS), size="3b", smoke=False)
    chosen = opt.environments.split("+")
    for name in chosen:
        common.check_known("environment", name, TURNS)
    c = textcraft.get_config(f"size={opt.size}")
    c.environments = {name: plain("template", turns=TURNS[name]) for name in chosen}
    # This default applies to environments without a horizon; all environments here have one.
    c.horizon = dict(kind="fixed", turns=15)
    c.evaluation.max_turns = 15
    if opt.smoke:
        common.smoke(c)
        c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 4096
    return c
