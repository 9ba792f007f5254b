r"""A policy of less than 0.2 million weights on BabyAI levels of several rooms, or on a maze.

python -m agentgym_jax.train --config=experiments/2026-11-25_two_environments/agents.py:train=babyai --workdir=runs/babyai
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

HERE = pathlib.Path(__file__).parent
SHORT, MIDDLE, LONG = 4, 8, 14  # turn limits; evaluations use the longest
# Turn limits change twice as late in the maze, whose episodes have half as many tokens.
PACE = dict(babyai=1, maze=2)
HORIZONS = ("short", "long", "growing", "adaptive")
# A match of a pattern becomes one token, so that episodes are short: phrases that always occur whole,
# and the cells of the maze.
PHRASES = (
    "Your goal: ",
    '"turn left", "turn right", "move forward", ',
    '"turn left", "turn right", ',
    r'"check available actions"\]',
    r"Available actions: \[",
    "In front of you in this room, you can see several objects: ",
    "There is an? ",
    " steps in front of you and ",
    " steps to your (?:left|right)[.] ",
    " right in front of you ",
    " steps away[.] ",
    " The room has walls around you[.] ",
    "You are facing a wall ",
    "You are not carrying anything[.]",
    "You are carrying an? ",
    "toggle and go through ",
    "toggle ",
    "go through ",
    "go to ",
    "pickup ",
    "turn left|turn right|move forward|check available actions",
    "(?:red|green|blue|purple|yellow|grey) ",
    "ball ?|box ?|key ?|(?:closed |open |locked )?door ?",
    r"[0-9]|\n|, ",
)
CELLS = (
    "The goal is at position |Your current position is at position |There are walls |There is a wall ",
    "to your left|to your right|above you|below you|move (?:left|right|up|down)|Action:",
    r"[0-9]+, [0-9]+|[.] |, |\n",
)
WORDS = dict(babyai="|".join(PHRASES), maze="|".join(CELLS))
VOCABULARY = dict(babyai=1024, maze=512)


def listed(name):
    """Returns the selection of the worlds in a list that divide_tasks.py writes."""
    return dict(kind="file", path=str(HERE / f"{name}.json"))


TASKS = dict(
    babyai=dict(train=listed("babyai_train"), eval=listed("babyai_held_out")),
    maze=dict(train=listed("maze_train"), eval=listed("maze_held_out")),
)


def demonstrations(environment):
    """Returns the sets that the warm start imitates.

    The worlds and walks are not those of the training. The agents are a random player and the expert
    with detours, which are not imitated.
    """
    if environment == "babyai":
        worlds = dict(
            environment="babyai", tasks=listed("babyai_shown"), max_turns=LONG, epsilon=0.3
        )
        return dict(
            play=dict(agent="random", seed=0, **worlds),
            expert=dict(agent="mixed", seed=1, **worlds),
        )
    walks = dict(environment="maze", tasks=listed("maze_shown"), max_turns=LONG)
    return dict(
        play=dict(agent="random", epsilon=0.0, seed=0, **walks),
        expert=dict(agent="mixed", epsilon=0.3, seed=1, **walks),
    )


def horizon(kind, pace):
    """Returns the section of a schedule; its steps are multiples of `pace`."""
    if kind in ("short", "long"):
        return dict(kind="fixed", turns=SHORT if kind == "short" else LONG)
    turns = (SHORT, MIDDLE, LONG)
    if kind == "growing":
        return dict(kind="stepwise", turns=turns, boundaries=(10 * pace, 18 * pace))
    steps = dict(min_steps=4 * pace, max_steps=12 * pace)
    return dict(kind="adaptive_success", turns=turns, threshold=0.4, decay=0.7, **steps)


def get_config(arg=None):
    """Returns the config.

    Options: train=babyai|maze; horizon=short|long|growing|adaptive; start=a run folder.
    """
    known = dict(train=tuple(TASKS), horizon=HORIZONS)
    opt = common.parse(arg, known, train="babyai", horizon="long", start="")
    c = common.base()
    c.total_steps = 20
    c.model = bandit.tiny_policy()
    c.tokenizer = dict(
        source="train",
        vocab_size=VOCABULARY[opt.train],
        pretokenizer_pattern=WORDS[opt.train],
        template="compact",
    )
    c.environments = {opt.train: common.environment(**TASKS[opt.train])}
    c.pool.workers = 16
    c.sampler = dict(
        rows=64, cache_length=1024, buckets=((32, 32),), decode_steps=8, return_after_finished=16
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=32, max_tokens=1024)
    c.rollout.tasks_per_step = 8
    c.rollout.system_prompt_mode = "none"
    c.algorithm = bandit.algorithm("dr_grpo", length=128, critic_rate=0.0)
    c.horizon = horizon(opt.horizon, PACE[opt.train])
    bandit.learn(c, row_length=1024, micro_rows=4)
    c.optimizer.learning_rate = 5e-4
    c.optimizer.schedule = "constant"
    c.optimizer.warmup_steps = 3
    c.evaluation = dict(every=5, at_start=True, max_turns=LONG, samples=1, greedy=False)
    c.checkpoint.every = c.total_steps
    steps = dict(babyai=400, maze=250)[opt.train]
    c.sft = bandit.warm_start(opt.train, {}, steps, row_length=640, max_turns=LONG, train_on="text")
    with c.unlocked():
        c.sft.demonstrations = demonstrations(opt.train)
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
