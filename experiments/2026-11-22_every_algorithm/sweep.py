r"""The comparison of this experiment as a sweep. Not run: each run trains its own warm start.

  python -m agentgym_jax.sweep --workdir=runs/every_algorithm \
      --config=experiments/2026-11-22_every_algorithm/sweep.py:of=bandit

With `start=FOLDER` all runs begin with the weights of one warm start, as in run.py.
"""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, listed

ALGORITHMS = (
    "ppo ppo_shared ppo_turn grpo dr_grpo rloo reinforce reinforce_pp reinforce_pp_baseline dapo gspo "
    "gspo_token cispo gigpo"
).split()
SMALLER_STEPS = {"optimizer.learning_rate": 1e-3, "total_steps": 68}
# Settings that an algorithm requires; the reasons are in run.py.
OWN = {
    "grpo": {"algorithm.aggregation.mode": "token_mean"},
    "reinforce": {"learner.mini_batches": 1, "total_steps": 90},
    "cispo": SMALLER_STEPS,
}
OWN_TWO_ROOMS = {"gspo_token": SMALLER_STEPS, "ppo_shared": SMALLER_STEPS}


def get_config(arg=None):
    """Returns the sweep. Options: of=bandit|two_rooms; start=a run folder."""
    opt = common.parse(arg, {"of": ("bandit", "two_rooms")}, of="bandit", start="")
    own = OWN | (OWN_TWO_ROOMS if opt.of == "two_rooms" else {})
    points = {name: {":algorithm": name} | own.get(name, {}) for name in ALGORITHMS}
    start = f":start={opt.start}" if opt.start else ""
    return Sweep(
        config=f"configs/rl/{opt.of}.py{start}",
        axes=(listed("algorithm", points),),
        seeds=(0, 1, 2),
        metric="eval/score" if opt.of == "bandit" else "eval/success",
        baseline={"algorithm": "grpo"},
        memory_gib=2.0,
    )
