r"""Trains Qwen2.5-7B-Instruct with GRPO on TextCraft, as AgentGym-RL's released scripts do.

The turn limit grows (10, 20, 30) or is fixed at 30.

  python -m agentgym_jax.train --config=configs/paper/textcraft.py:size=7b --workdir=runs/textcraft
  python -m agentgym_jax.train --config=configs/paper/textcraft.py:horizon=fixed --workdir=runs/textcraft_fixed

Needs: accelerators (configs/paper/common.py); no running server (the command starts one).
Result: only the smoke variant has been run. Published success on 100 tasks: 91 % (7b, scaling), 89
% (7b, fixed), 75 % (3b, fixed).
Source: AgentGym-RL's released scripts (arXiv:2509.08755). All values are theirs, except for the
differences that configs/paper/common.py lists. The limit is 20 turns in the paper's appendix B and
30 turns in the scripts.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import common as paper

# Both scripts: textcraft_train.sh. The release has 374 training ids.
SHARED = dict(
    tasks=32,
    samples=8,
    mini_batch=8,
    tokens=512 + 10240,
    turn_tokens=512,
    steps=30 * (374 // 32),
)
SCRIPTS = dict(
    scaling=SHARED | dict(turns=(10, 20, 30), period=100),
    fixed=SHARED | dict(turns=30, period=None),
)


def get_config(arg=None):
    """Returns the config.

    Options: size=32b|7b|3b|1p5b|0p5b; horizon=scaling|fixed; chips (a slice of
    configs/paper/common.py); smoke (a tiny random policy).
    """
    opt = common.parse(arg, size="7b", horizon="scaling", chips="", smoke=False)
    c = paper.get_config(opt.size, opt.horizon, SCRIPTS, eval_turns=30, chips=opt.chips)
    c.environments = dict(
        textcraft=common.environment(
            train=dict(kind="split", split="train", group_by="depth", where={}, limit=374),
            eval=dict(kind="split", split="test", group_by="depth", where={}, limit=0),
        )
    )
    if opt.smoke:
        common.smoke(c)
    return c
