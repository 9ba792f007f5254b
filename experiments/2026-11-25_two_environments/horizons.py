r"""Sweep of four schedules of the turn limit and two learning rates, from one warm start.

  python -m agentgym_jax.train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=experiments.2026-11-25_two_environments.agents,options=train=babyai --workdir=runs/start
  python -m agentgym_jax.sweep --config=experiments/2026-11-25_two_environments/horizons.py:train=babyai,start=runs/start --workdir=runs/horizons --parallel=2

Runs with short episodes have more steps. The report compares all runs after the same number of
tokens.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid, listed

# About 500,000 tokens.
STEPS = dict(
    babyai=dict(short=50, long=20, growing=30, adaptive=30),
    maze=dict(short=110, long=40, growing=62, adaptive=62),
)
RATES = dict(babyai=(5e-4, 1.5e-3), maze=(5e-4,))


def get_config(arg=None):
    """Returns the sweep. Options: train=babyai|maze; start=a run folder."""
    opt = common.parse(arg, {"train": tuple(RATES)}, train="babyai", start="")
    points = {
        name: {":horizon": name, "total_steps": steps, "evaluation.every": steps // 5}
        for name, steps in STEPS[opt.train].items()
    }
    return Sweep(
        config=f"experiments/2026-11-25_two_environments/agents.py:train={opt.train},start={opt.start}",
        axes=(listed("horizon", points), grid("optimizer.learning_rate", RATES[opt.train])),
        seeds=(0, 1, 2, 3, 4),
        metric="eval/success",
        step="equal_tokens",
        baseline={"horizon": "long"},
        memory_gib=2.0,
    )
