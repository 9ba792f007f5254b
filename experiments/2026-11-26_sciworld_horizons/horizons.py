r"""Sweep of four schedules of the turn limit on SciWorld's Lifespan tasks, from one warm start.

  python -m agentgym_jax.train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=experiments.2026-11-26_sciworld_horizons.agents --workdir=runs/start
  python -m agentgym_jax.sweep --config=experiments/2026-11-26_sciworld_horizons/horizons.py:start=runs/start --workdir=runs/horizons --parallel=2

Runs with short episodes have more steps. The report compares all runs after the same number of
tokens.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid, listed

STEPS = dict(short=32, long=20, growing=24, adaptive=24)  # about as many tokens


def get_config(arg=None):
    """Returns the sweep. Options: start=a run folder."""
    opt = common.parse(arg, start="")
    points = {
        name: {":horizon": name, "total_steps": steps, "evaluation.every": steps // 4}
        for name, steps in STEPS.items()
    }
    return Sweep(
        config=f"experiments/2026-11-26_sciworld_horizons/agents.py:start={opt.start}",
        axes=(listed("horizon", points), grid("optimizer.learning_rate", (5e-4,))),
        seeds=(0, 1, 2, 3, 4),
        metric="eval/success",
        step="equal_tokens",
        baseline={"horizon": "long"},
        memory_gib=2.0,
    )
