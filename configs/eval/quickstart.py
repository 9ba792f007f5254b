r"""Scores a run of configs/quickstart.py again, also on the levels of its expert demonstrations.

  python -m agentgym_jax.evaluate --config=configs/eval/quickstart.py --workdir=runs/eval --model=runs/quickstart

Needs: no running server (the command starts a BabyAI server); about two minutes on two CPU cores.
Result: 371 tasks, the recorded run of seed 1: sampled 60.4 %, greedy 49.3 %. GoToDoor, which was
demonstrated and never used in RL: 75.5 and 67.9 % (experiments/2026-11-21_quickstart_four_levels).
Source: tasks, decoding and limits of configs/quickstart.py.
"""

from agentgym_jax.configs import common, quickstart


def get_config(arg=None):
    """Returns the config. Options: smoke (one world per level, three turns)."""
    opt = common.parse(arg, smoke=False)
    trained = quickstart.get_config("smoke" if opt.smoke else None)
    c = common.evaluation_base()
    for section in ("environments", "pool", "sampler", "sampling", "rollout", "evaluation"):
        c[section] = trained[section]
    c.environments.babyai.train = {}
    c.environments.babyai.eval.groups = quickstart.LEVELS | quickstart.EXPERT
    c.model.dtype = c.model.decode_dtype = "float32"
    c.tokenizer.template = trained.tokenizer.template
    return c
