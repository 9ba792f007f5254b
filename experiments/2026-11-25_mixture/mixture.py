r"""Sweep: training on BabyAI, on the maze, or on both, from one warm start.

  python -m agentgym_jax.train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=experiments.2026-11-25_mixture.agents --workdir=runs/start
  python -m agentgym_jax.sweep --config=experiments/2026-11-25_mixture/mixture.py:start=runs/start --workdir=runs/mixture --parallel=2

A run on both environments has twice as many steps: half way it has trained on as many tasks as the
other runs, at its end on as many tasks of each environment.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, listed


def get_config(arg=None):
    """Returns the sweep. Options: start=a run folder; of=babyai|maze, the reported success."""
    opt = common.parse(arg, dict(of=("babyai", "maze")), start="", of="babyai")
    return Sweep(
        config=f"experiments/2026-11-25_mixture/agents.py:start={opt.start}",
        axes=(listed("train", {name: {":train": name} for name in ("babyai", "maze", "both")}),),
        seeds=(0, 1, 2, 3, 4),
        metric=f"eval/{opt.of}/success",
        baseline={"train": "both"},
        memory_gib=2.0,
    )
