r"""Sweep of two schedules of the turn limit on SciWorld's Lifespan tasks with the score as reward.

  python -m agentgym_jax.sweep --config=experiments/2026-11-26_sciworld_reward/score.py:start=runs/start --workdir=runs/score --parallel=2

The runs with success as reward are those of experiments/2026-11-26_sciworld_horizons.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid, listed

STEPS = dict(long=20, growing=24)  # about as many tokens


def get_config(arg=None):
    """Returns the sweep. Options: start=a run folder."""
    opt = common.parse(arg, start="")
    points = {
        name: {":horizon": name, "total_steps": steps, "evaluation.every": steps // 4}
        for name, steps in STEPS.items()
    }
    return Sweep(
        config=f"experiments/2026-11-26_sciworld_horizons/agents.py:start={opt.start}",
        axes=(listed("horizon", points), grid("rollout.reward", ("score",))),
        seeds=(0, 1, 2, 3, 4),
        metric="eval/success",
        step="equal_tokens",
        baseline={"horizon": "long"},
        memory_gib=2.0,
    )
