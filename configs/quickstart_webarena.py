r"""The quickstart on web navigation: a tiny policy in a real browser, in the embedded shop.

  python -m agentgym_jax.train --config=configs/quickstart_webarena.py --workdir=runs/webarena

Needs: the extra [web] and Chromium; nothing running (it starts the shop and its own server, and seeds the
shop's database at the first start); two CPU cores, 4 GB of memory.
Result: goes through the whole trainer in nine minutes; solves none of 24 held-out tasks, before and after
(experiments/LOG.md).
Source: the sizes of configs/quickstart.py; tasks split by template instance by the manifest of the server.
"""

from agentgym_jax.configs import common, quickstart


def tasks(split, limit=0):
    """Tasks of the shop, the only site that is started."""
    return dict(kind="split", split=split, group_by="template", where={}, limit=limit)


def get_config(arg=None):
    """Options: smoke (a few minutes, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    c = quickstart.get_config("smoke" if opt.smoke else None)
    shop = dict(sites="shopping")
    c.environments = dict(
        webarena=common.environment(options=shop, train=tasks("train"), eval=tasks("test"))
    )
    c.env.workers = 2  # each has a browser
    c.total_steps = 3
    c.tokenizer.vocab_size = 2048
    c.tokenizer.isolate = r"[0-9]|\n|\t|, |\[|\]"
    # A page is some thousand tokens of a small vocabulary.
    c.sampler = dict(rows=16, cache_length=8192, buckets=((512, 4),), decode_steps=8, wake_rows=2)
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=64, max_tokens=8192)
    c.model.architecture.max_position = 8192
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 4
    c.rollout.max_invalid_actions = 2
    # Nothing is solved at first: that an action can be done at all is what there is to learn.
    c.rollout.wasted_turn_penalty = 0.1
    c.optimizer.warmup_steps = 0
    c.learner.row_length = 8192
    c.learner.micro_rows = 1
    c.learner.mini_batches = 1
    c.learner.min_informative_groups = 0
    c.horizon = dict(kind="stepwise", turns=(3, 4), boundaries=(1,))
    c.evaluation.max_turns = 4
    with c.unlocked():
        c.sft.demonstrations = dict(
            expert=dict(
                environment="webarena",
                options=shop,
                player="expert",
                tasks=tasks("train", limit=40),
                epsilon=0.0,
                max_turns=6,
                seed=0,
            )
        )
    c.sft.steps = 30
    c.sft.rows = 1
    c.sft.micro_rows = 1
    c.sft.row_length = 8192
    if opt.smoke:
        c.total_steps = 2
        c.environments.webarena.eval.limit = 2
        c.sft.demonstrations.expert.tasks.limit = 3
        c.sft.steps = 2
        c.horizon = dict(kind="fixed", turns=2)
        c.evaluation.max_turns = 2
    return c
