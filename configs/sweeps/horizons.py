r"""Compares short, long and growing turn limits on BabyAI: the question of ScalingInter-RL.

  python -m agentgym_jax.sweep --config=configs/sweeps/horizons.py --workdir=runs/sweep_horizons
  python -m agentgym_jax.sweep report runs/sweep_horizons

All runs have equally many steps, so a longer limit also means more tokens; the report shows both.

Needs: no running server; two CPU cores, 2 GB of memory per run, about ten minutes per run.
Result: not run yet. experiments/2026-11-25_two_environments compares such limits at equal tokens.
Source: `growing` is the schedule of configs/quickstart.py; the paper is arXiv:2509.08755.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, listed


def get_config(arg=None):
    """Returns the sweep. Options: smoke (a minute per run, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    # A schedule whose three limits are equal is a fixed limit.
    limits = dict(short=(6, 6, 6), long=(10, 10, 10), growing=(6, 8, 10))
    if opt.smoke:
        limits = dict(short=(2, 2), long=(3, 3), growing=(2, 3))
    return Sweep(
        config="configs/quickstart.py" + ":smoke" * opt.smoke,
        axes=(listed("horizon", {name: {"horizon.turns": t} for name, t in limits.items()}),),
        seeds=(0, 1, 2, 3, 4),
        metric="eval/success",
        baseline={"horizon": "long"},
        memory_gib=2.0,
    )
