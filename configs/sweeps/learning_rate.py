r"""Learning rate of the quickstart, with three seeds each.

  python -m agentgym_jax.sweep --config=configs/sweeps/learning_rate.py --workdir=runs/sweep_rate
  python -m agentgym_jax.sweep report runs/sweep_rate

Needs: no running server; two CPU cores, 2 GB of memory per run, about ten minutes per run.
Result: not run yet.
Source: 4e-4 is the rate of configs/quickstart.py; we chose its neighbours.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid


def get_config(arg=None):
    """Returns the sweep. Options: smoke (a minute per run, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    return Sweep(
        config="configs/quickstart.py" + ":smoke" * opt.smoke,
        axes=(grid("optimizer.learning_rate", (1e-4, 2e-4, 4e-4, 8e-4)),),
        seeds=(0, 1, 2),
        metric="eval/success",
        baseline={"learning_rate": 4e-4},
        memory_gib=2.0,
    )
