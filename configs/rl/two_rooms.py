r"""Tests that an algorithm learns a BabyAI level with two rooms, which the expert always solves.

  python -m agentgym_jax.train --config=configs/rl/two_rooms.py:algorithm=rloo --workdir=runs/two_rooms

Needs: no running server (the command starts a BabyAI server); two CPU cores.
Result: experiments/2026-11-22_every_algorithm has three seeds of every algorithm of
docs/algorithms.md from the same warm start.
Source: we chose the level and the sizes; the values of an algorithm are from configs/common.py.
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

# The 105 distinct worlds of OpenRedDoor, half of them held out. Different seeds of this level can
# give the same world. experiments/2026-11-22_every_algorithm/worlds.py writes the lists.
WORLDS = pathlib.Path(__file__).with_name("two_rooms_tasks")
TURNS = 4  # at most three turns to look in every direction, and one to open the door
WORDS = (
    "turn left|turn right|move forward|toggle and go through|go to|red closed door|red|[0-9]|\n|, "
)


def get_config(arg=None):
    """Returns the config.

    Options: algorithm=grpo, or any other of configs/common.py; start=a run folder; smoke.
    """
    opt = common.parse(arg, algorithm="grpo", start="", smoke=False)
    c = common.base()
    c.total_steps = 45
    c.model = bandit.tiny_policy()
    c.tokenizer = dict(
        source="train", vocab_size=512, pretokenizer_pattern=WORDS, template="compact"
    )
    c.environments = dict(
        babyai=common.environment(
            train=dict(kind="file", path=str(WORLDS / "train.json")),
            eval=dict(kind="file", path=str(WORLDS / "held_out.json")),
        )
    )
    c.pool.workers = 16
    c.sampler = dict(
        rows=48, cache_length=640, buckets=((32, 32),), decode_steps=8, return_after_finished=32
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=16, max_tokens=640)
    c.rollout.tasks_per_step = 6
    c.rollout.system_prompt_mode = "none"
    c.algorithm = bandit.algorithm(opt.algorithm, length=48, critic_rate=bandit.RATE)
    c.horizon = dict(kind="fixed", turns=TURNS)
    bandit.learn(c, row_length=640, micro_rows=4)
    c.evaluation = dict(every=0, at_start=True, max_turns=TURNS, samples=4, greedy=True)
    c.checkpoint.every = c.total_steps
    shown = dict(kind="file", path=str(WORLDS / "shown.json"))
    c.sft = bandit.warm_start(
        "babyai", shown, steps=200, row_length=512, max_turns=3, train_on="actions"
    )
    if opt.start:
        bandit.start_from(c, opt.start)
    if opt.smoke:
        c.total_steps = 3
        c.optimizer.warmup_steps = 0
    return c
