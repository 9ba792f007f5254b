r"""A policy of 0.14 million weights on SciWorld's Lifespan tasks, with a schedule of the turn limit.

python -m agentgym_jax.train --config=experiments/2026-11-26_sciworld_horizons/agents.py --workdir=runs/sciworld
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

HERE = pathlib.Path(__file__).parent
SHORT, MIDDLE, LONG = 6, 10, 14  # turn limits; evaluations use the longest
HORIZONS = ("short", "long", "growing", "adaptive")
# A match of a pattern becomes one token: phrases that always occur whole, then a word with the space
# before it.
PHRASES = (
    "Action:",
    r"You also see:\n\tA door to the",
    "This room is called the",
    "In it, you see:",
    r"\(that is (?:closed|open)\)\n?",
    r"\n\t(?:a substance called|an?|A door to the|the)?",
)
PLAIN = r" ?[A-Za-z]+:?| ?[0-9]+|\n|[.,_\[\]()]"
WORDS = "|".join([*PHRASES, PLAIN])


def tasks(name):
    """Returns the selection of the tasks in a list that list_tasks.py writes."""
    return dict(kind="file", path=str(HERE / f"{name}.json"))


def horizon(kind):
    """Returns the section of a schedule."""
    if kind in ("short", "long"):
        return dict(kind="fixed", turns=SHORT if kind == "short" else LONG)
    turns = (SHORT, MIDDLE, LONG)
    if kind == "growing":
        return dict(kind="stepwise", turns=turns, boundaries=(6, 12))
    return dict(
        kind="adaptive_success", turns=turns, threshold=0.2, decay=0.7, min_steps=3, max_steps=8
    )


def demonstrations():
    """Returns the sets that the warm start imitates: the expert, and twice with detours.

    Their tasks are not those of the training. Detours are not imitated.
    """
    shown = dict(environment="sciworld", tasks=tasks("shown"), max_turns=LONG)
    return dict(
        expert=dict(agent="expert", epsilon=0.0, seed=0, **shown),
        detours1=dict(agent="mixed", epsilon=0.3, seed=1, **shown),
        detours2=dict(agent="mixed", epsilon=0.3, seed=2, **shown),
    )


def get_config(arg=None):
    """Returns the config.

    Options: horizon=short|long|growing|adaptive; start=a run folder.
    """
    opt = common.parse(arg, dict(horizon=HORIZONS), horizon="long", start="")
    c = common.base()
    c.total_steps = 20
    c.model = bandit.tiny_policy()
    c.tokenizer = dict(
        source="train", vocab_size=1024, pretokenizer_pattern=WORDS, template="compact"
    )
    c.environments = dict(sciworld=common.environment(train=tasks("train"), eval=tasks("held_out")))
    c.pool.workers = 16
    c.sampler = dict(
        rows=64, cache_length=1024, buckets=((32, 32),), decode_steps=8, return_after_finished=16
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=32, max_tokens=1024)
    c.rollout.tasks_per_step = 8
    c.rollout.system_prompt_mode = "none"
    c.algorithm = bandit.algorithm("dr_grpo", length=128, critic_rate=0.0)
    c.horizon = horizon(opt.horizon)
    bandit.learn(c, row_length=1024, micro_rows=4)
    c.optimizer.learning_rate = 5e-4
    c.optimizer.schedule = "constant"
    c.optimizer.warmup_steps = 3
    c.evaluation = dict(every=5, at_start=True, max_turns=LONG, samples=1, greedy=False)
    c.checkpoint.every = c.total_steps
    c.sft = bandit.warm_start(
        "sciworld", {}, 200, row_length=1024, max_turns=LONG, train_on="actions"
    )
    with c.unlocked():
        c.sft.demonstrations = demonstrations()
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
