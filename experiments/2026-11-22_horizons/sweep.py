r"""The four schedules of this experiment as a sweep. Not run: it compares at equal steps.

  export PYTHONPATH=.:experiments/2026-11-22_horizons
  python -m agentgym_jax.sweep --config=experiments/2026-11-22_horizons/sweep.py --workdir=runs/horizons

compare.py ends a run at a number of tokens, for which a config has no key. Here all runs have the
same number of steps, and each trains its own warm start.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid


def get_config(arg=None):
    """Returns the sweep. Option: steps=60."""
    opt = common.parse(arg, steps=60)
    return Sweep(
        config="experiments/2026-11-22_horizons/config.py",
        axes=(grid(":horizon", ("short", "long", "stepwise", "adaptive")),),
        seeds=(0, 1, 2),
        metric="eval/success",
        baseline={"horizon": "long"},
        settings={"total_steps": opt.steps, "checkpoint.every": opt.steps},
        memory_gib=2.0,
    )
