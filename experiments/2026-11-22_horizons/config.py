r"""Chains of one to six pulls under one schedule of the turn limit; compare.py runs all of them.

PYTHONPATH=.:experiments/2026-11-22_horizons python experiments/2026-11-22_horizons/compare.py --out=runs/horizons
"""

import chain

from configs import common
from configs.rl import bandit

LONG = chain.MAX_TURNS
HORIZONS = dict(
    short=dict(kind="fixed", turns=3),
    long=dict(kind="fixed", turns=LONG),
    stepwise=dict(kind="stepwise", turns=(3, 5, LONG), boundaries=(15, 30)),
    adaptive=dict(
        kind="adaptive_success",
        turns=(3, 5, LONG),
        threshold=0.4,
        decay=0.7,
        min_steps=4,
        max_steps=0,
    ),
)


def get_config(arg=None):
    """Returns the config. Options: horizon=short|long|stepwise|adaptive; start=a run folder."""
    opt = common.parse(arg, horizon="long", start="")
    c = bandit.get_config("algorithm=dr_grpo")
    tasks = dict(kind="split", group_by="depth", where={})
    c.total_steps = 400  # upper bound; the token budget ends a run earlier
    c.environments = dict(
        chain=common.environment(
            module="chain",
            train=tasks | dict(split="train", limit=0),
            eval=tasks | dict(split="test", limit=120),
        )
    )
    c.sampler.cache_length = 256
    c.sampling.max_tokens = 256
    c.rollout.reward = "success"
    c.optimizer.learning_rate = 1.5e-3
    c.algorithm = bandit.algorithm("dr_grpo", length=64, critic_rate=0.0)
    c.horizon = HORIZONS[opt.horizon]
    c.learner.row_length = 256
    c.learner.micro_rows = 8
    c.evaluation = dict(every=15, at_start=True, max_turns=LONG, samples=1, greedy=False)
    c.checkpoint.every = c.total_steps
    shown = dict(
        kind="residues",
        start=0,
        stop=600,
        modulus=6,
        groups={f"depth {i + 1}": i for i in (2, 4, 5)},
    )
    c.sft = bandit.warm_start(
        "chain", shown, steps=250, row_length=512, max_turns=20, train_on="text"
    )
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
