r"""The quickstart on TextCraft: a tiny policy, the expert's crafting shown on some goals, then RL.

  python -m agentgym_jax.train --config=configs/quickstart_textcraft.py --workdir=runs/textcraft

Needs: nothing running (it starts its own TextCraft server); two CPU cores, 2 GB of memory.
Result: RL does not help yet. 72 held-out goals, seed 0, after 13 steps: sampled 2.8 -> 1.4 %, greedy 4.2 ->
4.2 % (experiments/LOG.md). That run drew the two depths equally often; tasks are now drawn equally often.
Source: the sizes of configs/quickstart.py; goals split by the manifest of the server.
"""

from agentgym_jax.configs import common, quickstart


def tasks(split, limit=0):
    """Goals that need one or two crafting steps; deeper ones are out of reach for this policy."""
    return dict(kind="split", split=split, group_by="depth", where=dict(depth=(1, 2)), limit=limit)


def get_config(arg=None):
    """Options: smoke (one minute, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    c = quickstart.get_config("smoke" if opt.smoke else None)
    c.environments = dict(textcraft=common.environment(train=tasks("train"), eval=tasks("test")))
    c.tokenizer.vocab_size = 1024
    c.tokenizer.isolate = r"[0-9]+|\n|, | "
    c.sampling.max_turn_tokens = 48
    c.horizon = dict(kind="stepwise", turns=(4, 6, 10), boundaries=(12, 22))
    c.evaluation.max_turns = 10
    with c.unlocked():
        c.sft.demonstrations = dict(
            expert=dict(
                environment="textcraft",
                player="mixed",
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
