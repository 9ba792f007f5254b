r"""One small policy imitates the experts of TextCraft, BabyAI and SciWorld.

python -m agentgym_jax.train --config=experiments/2026-11-25_suite/agents.py --workdir=runs/suite_policy
"""

from agentgym_jax.configs import common, quickstart

GROUPS = dict(textcraft="depth", babyai="family", sciworld="task")
TURNS = dict(textcraft=30, babyai=20, sciworld=30)
# A match of a pattern becomes one token: sentences that always occur whole, then a word together
# with the space before it.
SENTENCES = (
    "In front of you in this room, you can see several objects:",
    " ?There is an?",
    " steps in front of you and",
    " steps to your (?:left|right)[.]",
    " right in front of you",
    " steps away[.]",
    " The room has walls around you[.]",
    "You are facing a wall",
    "You are not carrying anything[.]",
    "You are carrying an?",
    r"Available actions: \[",
    '"turn left", "turn right",(?: "move forward",)?',
    r'"check available actions"\]',
    "This room is called the",
    "In it, you see:",
    r"\n\t(?:a substance called|an?|A door to the|the)?",
    r" \(that is (?:closed|open)\)",
)
WORDS = "|".join([*SENTENCES, r"Action:| ?[A-Za-z]+:?| ?[0-9]|\n|[.,_\"]"])


def tasks(name, split, limit=0):
    """Returns the selection of tasks of an environment in a split of its manifest."""
    return dict(kind="split", split=split, group_by=GROUPS[name], where={}, limit=limit)


def get_config(arg=None):
    """Returns the config. Option: smoke (a few demonstrations, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    c = quickstart.get_config()
    c.total_steps = 1
    c.model.architecture.max_position = 4096
    c.tokenizer.vocab_size = 4096
    c.tokenizer.pretokenizer_pattern = WORDS
    c.environments = {
        name: common.environment(
            train=tasks(name, "train"),
            eval=tasks(name, "test", limit=1),
            eval_max_turns=2,
        )
        for name in GROUPS
    }
    c.sampler.cache_length = c.sampling.max_tokens = 4096
    c.sampling.max_turn_tokens = 48
    c.learner.row_length = 4096
    c.learner.micro_rows = 1
    c.horizon = dict(kind="fixed", turns=2)
    c.evaluation.max_turns = 2
    c.rollout.max_parse_errors = 3
    sets = dict(
        textcraft0=("textcraft", 0.0, 0),
        textcraft1=("textcraft", 0.15, 0),
        textcraft2=("textcraft", 0.15, 0),
        babyai=("babyai", 0.15, 2000),
        sciworld=("sciworld", 0.0, 400),
    )
    with c.unlocked():
        c.sft.demonstrations = {
            name: dict(
                environment=environment,
                agent="mixed" if epsilon else "expert",
                tasks=tasks(environment, "train", limit=20 if opt.smoke else limit),
                epsilon=epsilon,
                max_turns=TURNS[environment],
                seed=seed,
            )
            for seed, (name, (environment, epsilon, limit)) in enumerate(sets.items())
        }
    if opt.smoke:
        c.sft.optimizer.warmup_steps = 0
    c.optimizer.warmup_steps = 0
    c.sft.steps = 3 if opt.smoke else 1000
    c.sft.row_length = 2048
    c.sft.rows = 4
    c.sft.micro_rows = 4
    c.sft.train_on = "text"
    return c
