r"""Qwen2.5 on TextCraft with GRPO and the ScalingInter-RL horizon 10 -> 20 -> 30 turns.

  python -m agentgym_jax.train --config=configs/rl/textcraft_scalinginter.py:size=7b \
      --workdir=runs/textcraft --config.mesh.fsdp=-1

Needs: nothing running (it starts its own server); about 16 bytes per weight of accelerator memory
in all, plus the caches: one 80 GB chip for 3b, four for 7b.
Result: not run yet.
Source: AgentGym-RL, arXiv:2509.08755: turn limits and period of its table, tasks, samples and
tokens of its released script.
"""

from configs import common
from configs.rl import babyai_scalinginter


def get_config(arg=None):
    """Options: size=0p5b|1p5b|3b|7b; smoke (a tiny random policy, no download)."""
    opt = common.parse(arg, size="7b", smoke=False)
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
    c.horizon = dict(kind="periodic", turns=(10, 20, 30), period=100)
    c.evaluation.max_turns = 30
    if opt.smoke:
        common.smoke(c)
    return c
