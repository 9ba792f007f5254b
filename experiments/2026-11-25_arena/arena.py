r"""Sweeps of the algorithm arena: every algorithm from one warm start, on OpenRedDoor (two rooms).

  python -m agentgym_jax.train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=two_rooms --workdir=runs/start
  python -m agentgym_jax.sweep --config=experiments/2026-11-25_arena/arena.py:start=runs/start,stage=tune --workdir=runs/tune --parallel=2
  python -m agentgym_jax.sweep --config=experiments/2026-11-25_arena/arena.py:start=runs/start --workdir=runs/arena --parallel=2

The first sweep tries four learning rates on three tuning seeds. TUNED has the rate of each
algorithm with the best mean. The second sweep runs it on five other seeds.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, grid, listed

ALGORITHMS = (
    "grpo dr_grpo rloo reinforce reinforce_pp reinforce_pp_baseline ppo ppo_turn dapo gspo "
    "gspo_token cispo gigpo clip_cov kl_cov sapo"
).split()
RATES = (7e-4, 1.5e-3, 3e-3, 6e-3)
TUNING_SEEDS, TEST_SEEDS = (10, 11, 12), (0, 1, 2, 3, 4)
TUNED = dict.fromkeys(ALGORITHMS, 1.5e-3) | dict(
    cispo=7e-4,
    clip_cov=7e-4,
    dapo=7e-4,
    gspo=3e-3,
    gspo_token=3e-3,
    ppo_turn=3e-3,
    reinforce=3e-3,
    reinforce_pp_baseline=3e-3,
    rloo=3e-3,
)


def get_config(arg=None):
    """Returns the sweep. Options: start (a run folder); stage=tune|test."""
    opt = common.parse(arg, {"stage": ("tune", "test")}, start="", stage="test")
    if opt.stage == "tune":
        axes = (grid(":algorithm", ALGORITHMS), grid("optimizer.learning_rate", RATES))
    else:
        points = {
            name: {":algorithm": name, "optimizer.learning_rate": TUNED[name]}
            for name in ALGORITHMS
        }
        axes = (listed("algorithm", points),)
    return Sweep(
        config="configs/rl/two_rooms.py" + (f":start={opt.start}" if opt.start else ""),
        axes=axes,
        seeds=TUNING_SEEDS if opt.stage == "tune" else TEST_SEEDS,
        settings={
            "total_steps": 12,  # few enough that the algorithms still differ
            "optimizer.warmup_steps": 2,
            "evaluation.at_start": False,
            "checkpoint.every": 12,
        },
        metric="eval/success",
        baseline={"algorithm": "grpo"},
        memory_gib=2.0,
    )
