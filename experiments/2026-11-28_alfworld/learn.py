r"""A policy from scratch learns ALFWorld: it imitates an expert that searches, then RL.

python -m agentgym_jax.train --config=experiments/2026-11-28_alfworld/learn.py --workdir=runs/alfworld

The imitated houses are those of `more_tasks`, which neither RL nor the evaluation has.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

# Kinds of tasks in RL and evaluation, with data_idx % 6. Imitation has all six kinds.
KINDS = {"pick_and_place_simple": 0, "look_at_obj_in_light": 1}
TRAIN_TASKS, ALL_TASKS = 2420, 2620  # RL has the first, the others are held out, in other rooms
TURNS = 12
# A match becomes one token. A thing has the same token in the task, in observations and in commands.
COMMANDS = "go to [a-z]+ [0-9]+|take |put |open |close |use |examine |look|inventory"
PLACES = "(?: from | in/on )[a-z]+ [0-9]+"
WORDS = rf"{COMMANDS}|{PLACES}|,|[.]|\n|[a-z]+| [0-9]+| "


def residues(start, stop, modulus, groups):
    """Returns the tasks in [start, stop) whose index modulo `modulus` is that of a group."""
    return dict(kind="residues", start=start, stop=stop, modulus=modulus, groups=groups)


def get_config(arg=None):
    """Returns the config.

    Options: more=the number of imitated houses of all six kinds; updates=imitation updates;
    train_on=text|actions; start=a run folder whose weights imitation starts from.
    """
    opt = common.parse(arg, more="30000", updates="900", train_on="text", start="")
    more = int(opt.more)
    c = common.base()
    c.total_steps = 40
    c.model = bandit.tiny_policy()
    c.model.architecture.update(
        hidden_size=96, intermediate_size=256, num_layers=4, num_heads=3, max_position=2048
    )
    c.tokenizer = dict(
        source="train", vocab_size=1536, pretokenizer_pattern=WORDS, template="compact"
    )
    c.environments = dict(
        alfworld=common.environment(
            train=residues(0, TRAIN_TASKS, 6, KINDS),
            eval=residues(TRAIN_TASKS, ALL_TASKS, 6, KINDS),
            options=dict(expert="searches", more_tasks=more),
        )
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
    c.sft = bandit.warm_start(
        "alfworld", {}, int(opt.updates), row_length=2048, max_turns=20, train_on=opt.train_on
    )
    with c.unlocked():
        c.sft.rows = c.sft.micro_rows = 4
        c.sft.demonstrations = dict(
            expert=dict(
                environment="alfworld",
                agent="mixed",
                epsilon=0.1,
                tasks=residues(ALL_TASKS, ALL_TASKS + more, 6, KINDS),
                max_turns=20,
                seed=0,
            )
        )
    if opt.start:
        sft = c.sft
        bandit.start_from(c, opt.start)
        with c.unlocked():
            c.sft = sft
    return c
