r"""The quickstart on TextCraft: a tiny policy imitates the expert, then learns by RL.

  python -m agentgym_jax.train --config=configs/quickstart_textcraft.py --workdir=runs/textcraft

Needs: no running server (the command starts a TextCraft server); two CPU cores, 2 GB of memory.
Result: RL does not help yet. 72 held-out goals, seed 0, after 13 steps: sampled 2.8 -> 1.4 %,
greedy 4.2 -> 4.2 % (experiments/LOG.md). That run drew the two depths equally often. The current
code draws all tasks equally often.
Source: the sizes of configs/quickstart.py; the server's manifest has the split of the goals.
"""

from agentgym_jax.configs import common, quickstart


def tasks(split, limit=0):
    """Returns the selection of goals that need one or two crafting steps.

    The policy is too small for recipes that need more steps.
    """
    return dict(kind="split", split=split, group_by="depth", where=dict(depth=(1, 2)), limit=limit)


def get_config(arg=None):
    """Returns the config. Options: smoke (one minute, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    c = quickstart.get_config("smoke" if opt.smoke else None)
    c.environments = dict(textcraft=common.environment(train=tasks("train"), eval=tasks("test")))
    c.tokenizer.vocab_size = 1024
    c.tokenizer.pretokenizer_pattern = r"[0-9]+|\n|, | "
    c.sampling.max_turn_tokens = 48
    c.horizon = dict(kind="stepwise", turns=(4, 6, 10), boundaries=(12, 22))
    c.evaluation.max_turns = 10
    with c.unlocked():
        c.sft.demonstrations = dict(
            expert=dict(
                environment="textcraft",
                agent="mixed",
                tasks=tasks("train"),
                epsilon=0.3,
                max_turns=10,
                seed=0,
            )
        )
    c.sft.row_length = 768
    if opt.smoke:
        c.environments.textcraft.eval.limit = 4
        c.sft.demonstrations.expert.tasks.limit = 20
        c.sft.steps = 3
        c.horizon = dict(kind="stepwise", turns=(2, 3), boundaries=(1,))
        c.evaluation.max_turns = 3
    return c
