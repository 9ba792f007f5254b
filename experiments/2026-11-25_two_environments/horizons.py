r"""Sweep of four schedules of the turn limit and two learning rates, from one warm start.

  python -m agentgym_jax.sweep --config=experiments/2026-11-25_two_environments/horizons.py:train=babyai,start=runs/start_babyai --workdir=runs/horizons_babyai --parallel=2

A run with short episodes has more steps, so that all runs reach TOKENS; tables.py compares them
there.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid, listed

SHORT, MIDDLE, LONG = 4, 8, 14
# Steps of a run, enough for the same number of tokens.
STEPS = dict(short=50, long=25, growing=32, adaptive=32)
HORIZONS = dict(
    short=dict(kind="fixed", turns=SHORT),
    long=dict(kind="fixed", turns=LONG),
    growing=dict(kind="stepwise", turns=(SHORT, MIDDLE, LONG), boundaries=(10, 20)),
    adaptive=dict(
        kind="adaptive_success",
        turns=(SHORT, MIDDLE, LONG),
        threshold=0.4,
        decay=0.7,
        min_steps=4,
        max_steps=12,
    ),
)
RATES = dict(babyai=(3e-4, 1e-3), textcraft=(1e-4, 3e-4))


def get_config(arg=None):
    """Returns the sweep. Options: train=babyai|textcraft; start=a run folder; smoke."""
    opt = common.parse(arg, {"train": tuple(RATES)}, train="babyai", start="", seeds=5)
    points = {
        name: {"horizon": horizon, "total_steps": STEPS[name], "evaluation.every": STEPS[name] // 5}
        for name, horizon in HORIZONS.items()
    }
    return Sweep(
        config=f"experiments/2026-11-25_two_environments/agents.py:train={opt.train},start={opt.start}",
        axes=(listed("horizon", points), grid("optimizer.learning_rate", RATES[opt.train])),
        seeds=tuple(range(opt.seeds)),
        metric="eval/success",
        baseline={"horizon": "long"},
        memory_gib=2.0,
    )
