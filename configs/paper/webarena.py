r"""Trains Qwen2.5-7B-Instruct with GRPO on web navigation, as AgentGym-RL's released scripts do.

The turn limit grows (8, 12, 15) or is fixed at 15.

  python -m agentgym_jax.train --config=configs/paper/webarena.py:size=7b --workdir=runs/webarena
  python -m agentgym_jax.train --config=configs/paper/webarena.py:horizon=fixed --workdir=runs/webarena_fixed

By default the agent uses the embedded sites, which its server starts. To use
WebArena's own tasks, give the file of a deployment of WebArena (docs/webarena.md):

      --config=configs/paper/webarena.py:deployment=webarena.json

Needs: the extra [web] and Chromium; accelerators (configs/paper/common.py); no running server
except the deployment given above.
Result: only the smoke variant has been run. Published success on 50 tasks: 26 % (7b, scaling), 22 %
(7b, fixed), 18 % (3b, fixed).
Source: AgentGym-RL's released scripts (arXiv:2509.08755). All values are theirs, except for the
differences that configs/paper/common.py lists. The learning rate is 5e-7 in the paper's appendix B
and 1e-6 in the scripts.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import common as paper

# Both scripts: webarena_train.sh. The release has 372 training ids.
SHARED = dict(
    tasks=32,
    samples=4,
    mini_batch=4,
    tokens=750 + 14098,
    turn_tokens=512,
    steps=25 * (372 // 32),
)
SCRIPTS = dict(
    scaling=SHARED | dict(turns=(8, 12, 15), period=80),
    fixed=SHARED | dict(turns=15, period=None),
)


def get_config(arg=None):
    """Returns the config.

    Options: size=32b|7b|3b|1p5b|0p5b; horizon=scaling|fixed; chips (a slice of
    configs/paper/common.py); deployment (file); smoke (a tiny random policy).
    """
    opt = common.parse(arg, size="7b", horizon="scaling", chips="", deployment="", smoke=False)
    c = paper.get_config(opt.size, opt.horizon, SCRIPTS, eval_turns=15, chips=opt.chips)
    c.environments = dict(
        webarena=common.environment(
            options=dict(deployment=opt.deployment) if opt.deployment else {},
            train=dict(kind="split", split="train", group_by="template", where={}, limit=0),
            eval=dict(kind="split", split="test", group_by="template", where={}, limit=0),
        )
    )
    if opt.smoke:
        common.smoke(c)
    return c
