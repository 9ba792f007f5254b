r"""Qwen2.5 on web navigation with GRPO and the ScalingInter-RL horizon 8 -> 12 -> 15 turns.

  python -m agentgym_jax.train --config=configs/rl/webarena_scalinginter.py:size=7b \
      --workdir=runs/webarena --config.mesh.fsdp=-1

As it stands it plays on the embedded sites, which its server starts. A WebArena of one's own is
described in a file (docs/webarena.md):

      --config=configs/rl/webarena_scalinginter.py:deployment=webarena.json

Needs: the extra [web] and Chromium; nothing running but such a deployment; about 16 bytes per weight
of accelerator memory in all, plus the caches: one 80 GB chip for 3b, four for 7b.
Result: not run yet, but for the smoke variant.
Source: AgentGym-RL, arXiv:2509.08755: turn limits and period of its table, tasks, samples and
tokens of its released script.
"""

from configs import common
from configs.rl import babyai_scalinginter


def get_config(arg=None):
    """Options: size=0p5b|1p5b|3b|7b; deployment (file); smoke (a tiny random policy, no download)."""
    opt = common.parse(arg, size="7b", deployment="", smoke=False)
    c = babyai_scalinginter.get_config(f"size={opt.size}")
    c.total_steps = 240
    c.environments = dict(
        webarena=common.environment(
            options=dict(deployment=opt.deployment) if opt.deployment else {},
            train=dict(kind="split", split="train", group_by="template", where={}, limit=0),
            eval=dict(kind="split", split="test", group_by="template", where={}, limit=0),
        )
    )
    c.rollout.group_size = 4
    c.learner.mini_batches = 8  # 4 tasks each
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=512, max_tokens=14848)
    c.sampler.cache_length = 14848
    c.learner.row_length = 14848
    c.horizon = dict(kind="periodic", turns=(8, 12, 15), period=80)
    c.evaluation.max_turns = 15
    if opt.smoke:
        common.smoke(c)
    return c
