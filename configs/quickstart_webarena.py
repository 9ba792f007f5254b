r"""The quickstart on web navigation: a tiny policy in a real browser, in the embedded shop.

  python -m agentgym_jax.train --config=configs/quickstart_webarena.py --workdir=runs/webarena

Needs: the extra [web] and Chromium; no running server (the command starts the shop and an
environment server; the first start fills the shop's database); two CPU cores, 4 GB of memory.
Result: the whole run takes nine minutes. The policy solves none of 24 held-out tasks, before and
after training (experiments/LOG.md).
Source: the sizes of configs/quickstart.py; the server's manifest splits the tasks by template
instance.
"""

from agentgym_jax.configs import common, quickstart


def tasks(split, limit=0):
    """Returns the selection of the shop's tasks; the shop is the only site that is started."""
    return dict(kind="split", split=split, group_by="template", where={}, limit=limit)


def get_config(arg=None):
    """Returns the config. Options: smoke (a few minutes, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    c = quickstart.get_config("smoke" if opt.smoke else None)
    shop = dict(sites="shopping")
    c.environments = dict(
        webarena=common.environment(options=shop, train=tasks("train"), eval=tasks("test"))
    )
    c.env_server.workers = 2  # each worker starts one browser
    c.total_steps = 3
    c.tokenizer.vocab_size = 2048
    c.tokenizer.pretokenizer_pattern = r"[0-9]|\n|\t|, |\[|\]"
    # A page is some thousand tokens long because the vocabulary is small.
    c.sampler = dict(
        rows=16, cache_length=8192, buckets=((512, 4),), decode_steps=8, return_after_finished=2
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=64, max_tokens=8192)
    c.model.architecture.max_position = 8192
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 4
    c.rollout.max_parse_errors = 2
    # No task is solved at first. The penalty gives a learning signal: the policy learns to prefer
    # actions that the page accepts.
    c.rollout.failed_turn_penalty = 0.1
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
                agent="expert",
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
