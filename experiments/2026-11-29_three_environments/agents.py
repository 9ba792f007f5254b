r"""One policy of 0.6 million weights on TextCraft, BabyAI and SciWorld together (README.md of this folder).

python -m agentgym_jax.train --config=experiments/2026-11-29_three_environments/agents.py:start=runs/start --workdir=runs/together
"""

import importlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

textcraft = importlib.import_module("experiments.2026-11-26_textcraft_warm_start.agents")
rooms = importlib.import_module("experiments.2026-11-25_two_environments.agents")
sciworld = importlib.import_module("experiments.2026-11-26_sciworld_horizons.agents")

TURNS = 14
# SciWorld's phrases come first: they begin with a line feed, which is one token in BabyAI.
WORDS = "|".join(["Action: ", *sciworld.PHRASES[1:], *rooms.PHRASES, sciworld.PLAIN])
ENVIRONMENTS = dict(
    textcraft=dict(train=textcraft.goals("train"), eval=textcraft.goals("held_out")),
    babyai=rooms.TASKS["babyai"],
    sciworld=dict(train=sciworld.tasks("train"), eval=sciworld.tasks("held_out")),
)


def get_config(arg=None):
    """Returns the config.

    Options: file (demonstrations of write_demonstrations.py); horizon=long|growing; start=a run folder.
    """
    known = dict(horizon=("long", "growing"))
    opt = common.parse(arg, known, file="runs/demonstrations.jsonl", horizon="long", start="")
    c = textcraft.get_config(f"file={opt.file}")
    c.total_steps = 40
    c.tokenizer.pretokenizer_pattern = WORDS
    c.tokenizer.vocab_size = 2048
    c.environments = {name: common.environment(**tasks) for name, tasks in ENVIRONMENTS.items()}
    c.sampler.rows = 128
    c.rollout.tasks_per_step = 36
    c.optimizer.learning_rate = 5e-4
    c.evaluation.update(every=10, samples=2, greedy=True)
    c.checkpoint.every = 5
    if opt.horizon == "growing":  # about as many tokens as `long`
        c.total_steps = 50
        c.horizon = dict(kind="stepwise", turns=(5, 9, TURNS), boundaries=(15, 30))
    c.sft.steps = 900
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
