r"""Qwen2.5-0.5B imitates the experts of TextCraft, BabyAI and SciWorld, then learns by RL in all
three, on one GPU.

python -m agentgym_jax.train --config=experiments/2026-11-26_qwen_three_environments/agents.py:model=DIR --workdir=runs/qwen_three
"""

from agentgym_jax.configs import common
from agentgym_jax.data.suite import SUITE

GROUPS = dict(textcraft="depth", babyai="family", sciworld="task")
GROWING = dict(textcraft=(10, 20, 30), babyai=(6, 13, 20), sciworld=(10, 20, 30))
TOKENS = 8192


def tasks(name, limit=0):
    """Returns the selection of training tasks, which belong to the suite's sub-tasks."""
    facts = [subtask.where for subtask in SUITE[name].subtasks]
    (fact,) = facts[0]
    where = {fact: sum((tuple(values[fact]) for values in facts), ())}
    return dict(kind="split", split="train", group_by=GROUPS[name], where=where, limit=limit)


def demonstrations(name, epsilon, limit, seed):
    """Returns the entry of a set of demonstrations; `epsilon` is the probability of a detour."""
    return dict(
        environment=name,
        agent="mixed" if epsilon else "expert",
        tasks=tasks(name, limit),
        epsilon=epsilon,
        max_turns=SUITE[name].max_turns,
        seed=seed,
    )


def get_config(arg=None):
    """Returns the config.

    Options: model (a Hugging Face directory); steps of RL; horizon=growing|fixed;
    reward=score|success; files (demonstrations recorded before); smoke (a tiny random policy).
    """
    known = dict(horizon=("growing", "fixed"), reward=("score", "success"))
    opt = common.parse(
        arg,
        known,
        model="Qwen/Qwen2.5-0.5B-Instruct",
        steps=30,
        horizon="growing",
        reward="score",
        files="",
        smoke=False,
    )
    c = common.base()
    c.total_steps = opt.steps
    c.model.source = opt.model
    c.model.lora = common.lora(rank=16)
    c.environments = {
        name: common.environment(
            train=tasks(name),
            eval=dict(kind="suite", subtasks=(), limit=0),
            eval_max_turns=SUITE[name].max_turns,
        )
        for name in GROUPS
    }
    for name, turns in GROWING.items():
        c.environments[name].horizon = (
            dict(kind="stepwise", turns=turns, boundaries=(8, 16))
            if opt.horizon == "growing"
            else dict(kind="fixed", turns=turns[-1])
        )
    c.env_server.workers = 12
    c.pool.workers = 128
    c.sampler = dict(
        rows=128,
        cache_length=TOKENS,
        buckets=((32, 64), (64, 32), (256, 16), (1024, 8)),
        decode_steps=8,
        return_after_finished=8,
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=128, max_tokens=TOKENS)
    c.rollout.tasks_per_step = 24
    c.rollout.group_size = 8
    c.rollout.reward = opt.reward
    c.algorithm.loss = dict(clip_low=0.2, clip_high=0.28)
    c.algorithm.kl_coef = 0.0
    c.algorithm.entropy_coef = 0.0
    c.algorithm.logprob_chunk = 1024
    c.optimizer.learning_rate = 2e-4
    c.optimizer.schedule = "linear"
    c.optimizer.final_fraction = 0.2
    c.optimizer.b2 = 0.95
    c.learner.row_length = TOKENS
    c.learner.micro_rows = 4
    c.evaluation = dict(every=0, at_start=True, max_turns=30, samples=1, greedy=True)
    c.checkpoint.every = 10
    with c.unlocked():
        c.sft = dict(
            steps=250,
            rows=4,
            micro_rows=4,
            row_length=TOKENS,
            weighting="token_mean",
            train_on="actions",
            too_long="truncate",
            bad="fatal",
            files=(),
            demonstrations=dict(
                textcraft0=demonstrations("textcraft", 0.0, 0, 0),
                textcraft1=demonstrations("textcraft", 0.15, 0, 1),
                babyai=demonstrations("babyai", 0.15, 1200, 2),
                sciworld=demonstrations("sciworld", 0.0, 400, 3),
            ),
            optimizer=dict(c.optimizer) | dict(learning_rate=3e-4, warmup_steps=10),
        )
    if opt.files:
        c.sft.files = (opt.files,)
        c.sft.demonstrations = {}
    if opt.smoke:
        common.smoke(c)
        c.model.lora = common.lora(rank=4)
        c.env_server.workers = 1
        c.sft.steps = 2
        c.sft.optimizer.warmup_steps = 0
        for entry in c.sft.demonstrations.values():
            entry.tasks.limit = 3
            c.environments[entry.environment].eval.limit = 1
    return c
