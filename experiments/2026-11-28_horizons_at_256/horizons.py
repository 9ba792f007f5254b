r"""Sweep of two schedules of the turn limit and three learning rates, 256 episodes per step.

  python -m agentgym_jax.train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=experiments.2026-11-25_two_environments.agents,options=train=maze --workdir=runs/start
  python -m agentgym_jax.sweep --config=experiments/2026-11-28_horizons_at_256/horizons.py:start=runs/start --workdir=runs/horizons --parallel=2

With `seeds=1` and then more, the same folder is filled seed by seed. For BabyAI add `train=babyai`, and replace
`train=maze` in the first command.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid, listed

RATES = (5e-4, 1.5e-3, 4.5e-3)
# About 3 million tokens. `growing` leaves 4 turns after a fifth of the tokens and 8 turns after 45 %.
STEPS = dict(maze=(60, 80), babyai=(30, 45))  # of `long` and of `growing`
BOUNDARIES = dict(maze=(25, 45), babyai=(15, 27))


def get_config(arg=None):
    """Returns the sweep.

    Options: train=maze|babyai; start=a run folder; seeds=the number of seeds.
    """
    opt = common.parse(arg, {"train": tuple(STEPS)}, train="maze", start="", seeds="5")
    long, growing = STEPS[opt.train]
    schedules = {
        "long": {":horizon": "long", "total_steps": long},
        "growing": {
            ":horizon": "growing",
            "total_steps": growing,
            "horizon.boundaries": BOUNDARIES[opt.train],
        },
    }
    return Sweep(
        config=f"experiments/2026-11-25_two_environments/agents.py:train={opt.train},start={opt.start}",
        axes=(listed("horizon", schedules), grid("optimizer.learning_rate", RATES)),
        seeds=tuple(range(int(opt.seeds))),
        metric="eval/success",
        step="equal_tokens",
        baseline={"horizon": "long"},
        memory_gib=2.0,
        settings={
            "rollout.tasks_per_step": 32,
            "sampler.rows": 128,
            "evaluation.every": 10,
        },
    )
