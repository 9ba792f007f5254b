r"""A policy of 0.2 million weights on BabyAI levels of several rooms, or on TextCraft.

  python -m agentgym_jax.train --config=experiments/2026-11-25_two_environments/agents.py:train=babyai --workdir=runs/babyai
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

HERE = pathlib.Path(__file__).parent
LONG = 14  # longest turn limit; evaluations use it
# Matches of a pattern become one token. BabyAI: phrases that always occur whole. TextCraft: the name
# of an item, so that the policy can find the goal in the list of commands.
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
COMMANDS = (
    "craft (?=[0-9])|get (?=[0-9])| using |Goal: craft |Got |Crafted ",
    "Could not find enough items to craft minecraft:|Could not find |Crafting commands:",
    "[0-9]+ |minecraft:|inventory|Action:",
    r"[a-z]+(?: [a-z]+)*?(?=,| using|[.]|\n|$)",
    r"\n|, |[.]",
)
WORDS = dict(babyai="|".join(PHRASES), textcraft="|".join(COMMANDS))
VOCABULARY = dict(babyai=1024, textcraft=2560)
GOALS = dict(kind="split", group_by="depth", where={}, limit=0)


def listed(name):
    """Returns the selection of the worlds in a list that divide_worlds.py writes."""
    return dict(kind="file", path=str(HERE / f"{name}.json"))


TASKS = dict(
    babyai=dict(train=listed("train"), eval=listed("held_out")),
    textcraft=dict(train=GOALS | dict(split="train"), eval=GOALS | dict(split="test")),
)


def demonstrations(environment):
    """Returns the sets that the warm start imitates.

    BabyAI: other worlds of the same levels, as random valid actions and as the expert with detours.
    TextCraft: the expert on the goals of the training split, without and with detours.
    """
    if environment == "babyai":
        worlds = dict(environment="babyai", tasks=listed("shown"), max_turns=LONG, epsilon=0.3)
        return dict(
            play=dict(agent="random", seed=0, **worlds),
            expert=dict(agent="mixed", seed=1, **worlds),
        )
    goals = dict(environment="textcraft", tasks=TASKS["textcraft"]["train"], max_turns=20)
    return {
        f"crafting{seed}": dict(agent="mixed", epsilon=0.15 * (seed > 0), seed=seed, **goals)
        for seed in range(3)
    }


def get_config(arg=None):
    """Returns the config. Options: train=babyai|textcraft; start=a run folder."""
    opt = common.parse(arg, {"train": tuple(TASKS)}, train="babyai", start="")
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
    c.horizon = dict(kind="fixed", turns=LONG)
    bandit.learn(c, row_length=1024, micro_rows=4)
    c.optimizer.learning_rate = 5e-4
    c.optimizer.schedule = "constant"
    c.optimizer.warmup_steps = 3
    c.evaluation = dict(every=5, at_start=True, max_turns=LONG, samples=1, greedy=False)
    c.checkpoint.every = c.total_steps
    c.sft = bandit.warm_start(
        opt.train, {}, steps=400, row_length=640, max_turns=LONG, train_on="text"
    )
    with c.unlocked():
        c.sft.demonstrations = demonstrations(opt.train)
    if opt.train == "textcraft":
        c.sft.steps = 800
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
