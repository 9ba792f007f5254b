r"""Alternatives to ScalingInter-RL's horizon on TextCraft: per recipe depth, or mixed in one batch.

  python -m agentgym_jax.train --config=configs/rl/textcraft_horizons.py:horizon=by_depth \
      --workdir=runs/by_depth

Needs: accelerators (configs/paper/common.py); no running server (the command starts one).
Result: not run.
Source: configs/paper/textcraft.py. We chose the horizons and their values and have not tested them.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import textcraft

HORIZONS = dict(
    # A recipe depth advances to its next limit when the tasks of this depth are solved. Easy
    # recipes therefore advance earlier than deep ones.
    by_depth=dict(
        kind="by_group",
        each=dict(
            kind="adaptive_success",
            turns=(10, 20, 30),
            threshold=0.6,
            decay=0.8,
            min_steps=10,
            max_steps=100,
        ),
        groups={},
    ),
    # While limits are short, one task in four has a long limit.
    mixed=dict(
        kind="mixed",
        schedules=dict(
            growing=dict(kind="periodic", turns=(10, 20, 30), period=100),
            full=dict(kind="fixed", turns=30),
        ),
        weights=dict(growing=3, full=1),
    ),
)


def get_config(arg=None):
    """Returns the config.

    Options: size=7b|3b|1p5b|0p5b; horizon=by_depth|mixed; tell=none|start|every_turn (the turn
    budget shown to the agent); smoke (a tiny random policy).
    """
    known = dict(horizon=HORIZONS, tell=("none", "start", "every_turn"))
    opt = common.parse(arg, known, size="7b", horizon="by_depth", tell="none", smoke=False)
    c = textcraft.get_config(f"size={opt.size}")
    c.horizon = HORIZONS[opt.horizon]
    c.rollout.show_turn_budget = opt.tell
    if opt.smoke:
        common.smoke(c)
    return c
