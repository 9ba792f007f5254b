r"""Qwen2.5-0.5B learns BabyAI without demonstrations, or TextCraft after 20 imitation steps.

python -m agentgym_jax.train --config=experiments/2026-11-27_qwen_learns/learn.py:environment=babyai,model=DIR --workdir=runs/babyai
"""

import pathlib

from agentgym_jax.configs import common
from agentgym_jax.data.suite import SUITE

HERE = pathlib.Path(__file__).parent
TOKENS = 4096
INSTRUCTIONS = (
    "You control an agent in a grid world. Every turn you get a goal, a description of what you see "
    "and the available actions. Answer with exactly one of the available actions and nothing else."
)


def goals(name):
    """Returns the selection of the TextCraft goals in a list."""
    return dict(kind="file", path=str(HERE / f"{name}.json"))


def babyai():
    """Returns the entry of BabyAI: training worlds of the suite's 18 groups of levels."""
    families = tuple(subtask.name for subtask in SUITE["babyai"].subtasks)
    where = dict(family=families)
    return common.environment(
        train=dict(kind="split", split="train", group_by="level", where=where, limit=0),
        eval=dict(kind="suite", subtasks=(), limit=0),
        eval_max_turns=SUITE["babyai"].max_turns,
        horizon=dict(kind="fixed", turns=10),
        instructions=INSTRUCTIONS,
        action_format="react_or_bare",
    )


def textcraft(even):
    """Returns the entry of TextCraft: training goals that imitation has not shown.

    With `even`, half of the tasks have depth 2, and a quarter each has depth 1 and 3.
    """
    weights = {"depth 1": 1, "depth 2": 2, "depth 3": 1, "depth 4": 0} if even else {}
    return common.environment(
        train=goals("train"),
        weights=weights,
        eval=dict(kind="suite", subtasks=(), limit=0),
        eval_max_turns=SUITE["textcraft"].max_turns,
        horizon=dict(kind="fixed", turns=16),
    )


def get_config(arg=None):
    """Returns the config.

    Options: environment=babyai|textcraft; model (a Hugging Face directory); steps of RL; warm steps
    of imitation on TextCraft; even depths of TextCraft's goals without a curriculum; smoke (a tiny
    random policy).
    """
    known = dict(environment=("babyai", "textcraft"))
    opt = common.parse(
        arg,
        known,
        environment="babyai",
        model="Qwen/Qwen2.5-0.5B-Instruct",
        steps=60,
        warm=20,
        even=False,
        smoke=False,
    )
    c = common.base()
    c.total_steps = opt.steps
    c.model = dict(source=opt.model, dtype="bfloat16", decode_dtype="bfloat16", remat="none")
    c.model.lora = common.lora(rank=8)
    c.environments = {
        opt.environment: babyai() if opt.environment == "babyai" else textcraft(opt.even)
    }
    c.env_server.workers = 4
    c.pool.workers = 64
    c.sampler = dict(
        rows=128,
        cache_length=TOKENS,
        buckets=((32, 64),),
        decode_steps=8,
        return_after_finished=16,
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=48, max_tokens=TOKENS)
    c.rollout.tasks_per_step = 16
    c.rollout.group_size = 8
    c.rollout.max_parse_errors = 8
    c.rollout.failed_turn_penalty = 0.1
    if not opt.even:
        c.rollout.curriculum = dict(
            kind="success_rate", candidates=4, decay=0.8, prior=4.0, floor=0.02
        )
    c.algorithm.advantage = dict(std_normalize=True)
    c.algorithm.loss = dict(clip_low=0.2, clip_high=0.28)
    c.algorithm.kl_coef = 0.0
    c.algorithm.entropy_coef = 0.0
    c.algorithm.logprob_chunk = 1024
    c.optimizer.learning_rate = 2e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 2
    c.optimizer.final_fraction = 0.2
    c.optimizer.b2 = 0.95
    c.learner.row_length = TOKENS
    c.learner.micro_rows = 2
    c.learner.mini_batches = 2
    c.evaluation = dict(every=20, at_start=True, max_turns=20, samples=2, greedy=True)
    c.checkpoint.every = 10
    if opt.environment == "textcraft":
        with c.unlocked():
            c.sft = dict(
                steps=opt.warm,
                rows=1,
                micro_rows=1,
                row_length=1536,
                weighting="token_mean",
                train_on="actions",
                too_long="truncate",
                bad="fatal",
                files=(),
                demonstrations=dict(
                    textcraft=dict(
                        environment="textcraft",
                        agent="expert",
                        tasks=goals("shown"),
                        epsilon=0.0,
                        max_turns=30,
                        seed=0,
                    )
                ),
                optimizer=dict(c.optimizer) | dict(learning_rate=3e-4, warmup_steps=2),
            )
    if opt.smoke:
        common.smoke(c)
        c.model.lora = common.lora(rank=4)
        c.env_server.workers = 1
        c.environments[opt.environment].eval.limit = 1
        if opt.environment == "textcraft":
            c.sft.steps = 2
            c.sft.optimizer.warmup_steps = 0
    return c
