r"""Qwen2.5 on TextCraft with GRPO and the ScalingInter-RL horizon 10 -> 20 -> 30 turns.

  python -m agentgym_jax.train --config=configs/rl/textcraft_scalinginter.py:size=7b \
      --workdir=runs/textcraft --config.mesh.fsdp=-1

Needs: nothing running (it starts its own server); about 16 bytes per weight of accelerator memory
in all, plus the caches: one 80 GB chip for 3b, four for 7b.
Result: not run yet.
Source: AgentGym-RL, arXiv:2509.08755: turn limits and period of its table, tasks, samples and
tokens of its released script. The other horizons and their numbers are ours and were not tried.
"""

from configs import common
from configs.rl import babyai_scalinginter

GROWING = dict(kind="periodic", turns=(10, 20, 30), period=100)
HORIZONS = dict(
    paper=GROWING,
    # Every depth of recipe gets the next limit when it can use it: easy ones soon, deep ones late.
    by_depth=dict(
        kind="by_group",
        each=dict(
            kind="adaptive_success",
            turns=(10, 20, 30),
            threshold=0.6,
            decay=0.8,
            min_steps=10,
            max_steps=100,
        ),
        groups={},
    ),
    # While limits are short, one task in four shows what can be done with many turns.
    mixed=dict(
        kind="mixed",
        schedules=dict(growing=GROWING, full=dict(kind="fixed", turns=30)),
        weights=dict(growing=3, full=1),
    ),
)


def get_config(arg=None):
    """Options: size=0p5b|1p5b|3b|7b; horizon=paper|by_depth|mixed; tell=none|start|every_turn (its
    budget to the agent); smoke (a tiny random policy, no download)."""
    opt = common.parse(arg, size="7b", horizon="paper", tell="none", smoke=False)
    if opt.horizon not in HORIZONS:
        raise ValueError(f"unknown horizon {opt.horizon!r}; known: {', '.join(HORIZONS)}")
    c = babyai_scalinginter.get_config(f"size={opt.size}")
    c.environments = dict(
        textcraft=common.environment(
            train=dict(kind="split", split="train", group_by="depth", where={}, limit=374),
            eval=dict(kind="split", split="test", group_by="depth", where={}, limit=0),
        )
    )
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=512, max_tokens=10752)
    c.sampler.cache_length = 10752
    c.learner.row_length = 10752
    c.horizon = HORIZONS[opt.horizon]
    c.rollout.tell_budget = opt.tell
    c.evaluation.max_turns = 30
    if opt.smoke:
        common.smoke(c)
    return c
