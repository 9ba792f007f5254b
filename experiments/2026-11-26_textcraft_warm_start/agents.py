r"""A policy of 0.5 million weights on goals of TextCraft with two or three crafting steps.

python -m agentgym_jax.train --config=experiments/2026-11-26_textcraft_warm_start/agents.py --workdir=runs/textcraft
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

HERE = pathlib.Path(__file__).parent
TURNS = 14
# A match of this pattern becomes one token: a word with the space before it.
WORDS = r"Action:| ?[A-Za-z]+:?| ?[0-9]+|\n|[.,_\[\]()]"


def goals(name):
    """Returns the selection of the goals in a list that divide_goals.py writes."""
    return dict(kind="file", path=str(HERE / f"{name}.json"))


def policy():
    """Returns a random policy of 0.5 million weights."""
    section = bandit.tiny_policy()
    section["architecture"].update(
        hidden_size=128, intermediate_size=384, num_layers=2, num_heads=4, num_kv_heads=2
    )
    return section


def get_config(arg=None):
    """Returns the config.

    Options: exchanged=true|false (demonstrations from write_demonstrations.py, or plain ones);
    file (these demonstrations); start=a run folder.
    """
    opt = common.parse(arg, exchanged=True, file="runs/demonstrations.jsonl", start="")
    c = common.base()
    c.total_steps = 24
    c.model = policy()
    c.tokenizer = dict(
        source="train", vocab_size=1024, pretokenizer_pattern=WORDS, template="compact"
    )
    c.environments = dict(
        textcraft=common.environment(train=goals("train"), eval=goals("held_out"))
    )
    c.pool.workers = 16
    c.sampler = dict(
        rows=64, cache_length=1024, buckets=((32, 32),), decode_steps=8, return_after_finished=16
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=32, max_tokens=1024)
    c.rollout.tasks_per_step = 20
    c.rollout.system_prompt_mode = "none"
    c.algorithm = bandit.algorithm("dr_grpo", length=128, critic_rate=0.0)
    c.horizon = dict(kind="fixed", turns=TURNS)
    bandit.learn(c, row_length=1024, micro_rows=4)
    c.optimizer.learning_rate = 3e-4
    c.optimizer.schedule = "constant"
    c.optimizer.warmup_steps = 3
    c.evaluation = dict(every=6, at_start=True, max_turns=TURNS, samples=1, greedy=False)
    c.checkpoint.every = c.total_steps
    c.sft = bandit.warm_start(
        "textcraft", goals("train"), 500, row_length=1024, max_turns=TURNS, train_on="actions"
    )
    with c.unlocked():
        c.sft.files = (opt.file,) if opt.exchanged else ()
        shown = dict(environment="textcraft", tasks=goals("train"), max_turns=TURNS)
        c.sft.demonstrations = {
            f"expert{i}": dict(agent="mixed", epsilon=0.15, seed=i, **shown)
            for i in range(0 if opt.exchanged else 4)
        }
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
