r"""Compares two algorithms on the text bandit with three seeds.

  python -m agentgym_jax.sweep --config=configs/sweeps/bandit.py --workdir=runs/sweep_bandit
  python -m agentgym_jax.sweep report runs/sweep_bandit

Needs: no running server; two CPU cores, 2 GB of memory per run.
Result: mean held-out score of three seeds: GRPO 95.5 %, RLOO 96.2 %. The interval of the difference
includes 0 (experiments/LOG.md).
Source: configs/rl/bandit.py.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid


def get_config(arg=None):
    """Returns the sweep. Options: smoke (three steps per run)."""
    opt = common.parse(arg, smoke=False)
    return Sweep(
        config="configs/rl/bandit.py" + ":smoke" * opt.smoke,
        axes=(grid(":algorithm", ("grpo", "rloo")),),
        seeds=(0, 1, 2),
        metric="eval/score",
        baseline={"algorithm": "grpo"},
        memory_gib=2.0,
    )
