r"""A policy from scratch learns ALFWorld: it imitates an expert that searches, then RL.

python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn.py --workdir=runs/alfworld
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

KINDS = ("pick_and_place_simple", "look_at_obj_in_light")  # data_idx % 6 is 0 or 1
TRAIN_TASKS, ALL_TASKS = 2420, 2620
TURNS = 12
# A match becomes one token, so a command has the same tokens as in the list of possible commands.
COMMANDS = "go to [a-z]+ [0-9]+|take |put |open |close |use |examine |look|inventory"
THINGS = "(?: from | in/on )?[a-z]+ [0-9]+"
WORDS = rf"{COMMANDS}|{THINGS}|,|[.]|\n|[a-z]+| "


def tasks(half):
    """Returns the training tasks of one half, 0 or 1; no task is in both."""
    groups = {kind: kind_residue + len(KINDS) * 3 * half for kind_residue, kind in enumerate(KINDS)}
    return dict(kind="residues", start=0, stop=TRAIN_TASKS, modulus=12, groups=groups)


def held_out():
    """Returns the test tasks, which are in other rooms."""
    groups = {kind: residue for residue, kind in enumerate(KINDS)}
    return dict(kind="residues", start=TRAIN_TASKS, stop=ALL_TASKS, modulus=6, groups=groups)


def get_config(arg=None):
    """Returns the config. Options: start=a run folder, in place of the imitation."""
    opt = common.parse(arg, start="")
    c = common.base()
    c.total_steps = 40
    c.model = bandit.tiny_policy()
    c.model.architecture.update(
        hidden_size=96, intermediate_size=256, num_layers=4, num_heads=3, max_position=2048
    )
    c.tokenizer = dict(
        source="train", vocab_size=1536, pretokenizer_pattern=WORDS, template="compact"
    )
    searching = dict(expert="searches")  # option of the server
    c.environments = dict(
        alfworld=common.environment(train=tasks(1), eval=held_out(), options=searching)
    )
    c.pool.workers = 16
    c.sampler = dict(
        rows=64,
        cache_length=2048,
        buckets=((64, 16), (128, 8)),
        decode_steps=8,
        return_after_finished=16,
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=16, max_tokens=2048)
    c.rollout.tasks_per_step = 12
    c.rollout.system_prompt_mode = "none"
    c.algorithm = bandit.algorithm("dr_grpo", length=TURNS * 6, critic_rate=0.0)
    c.horizon = dict(kind="fixed", turns=TURNS)
    bandit.learn(c, row_length=2048, micro_rows=2)
    c.optimizer.learning_rate = 5e-4
    c.optimizer.schedule = "constant"
    c.optimizer.warmup_steps = 3
    c.evaluation = dict(every=10, at_start=True, max_turns=TURNS, samples=2, greedy=True)
    c.checkpoint.every = 10
    if opt.start:
        c.sft = dict(steps=0)
        bandit.start_from(c, opt.start)
        return c
    c.sft = bandit.warm_start("alfworld", {}, 600, row_length=2048, max_turns=20, train_on="text")
    with c.unlocked():
        c.sft.rows = c.sft.micro_rows = 4
        c.sft.demonstrations = dict(
            expert=dict(
                environment="alfworld",
                agent="mixed",
                epsilon=0.1,
                tasks=tasks(0),
                max_turns=20,
                seed=0,
            )
        )
    return c
