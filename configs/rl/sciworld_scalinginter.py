r"""Qwen2.5 on SciWorld with GRPO and the ScalingInter-RL horizon 10 -> 20 -> 30 turns.

  python -m agentgym_jax.train --config=configs/rl/sciworld_scalinginter.py:size=7b \
      --workdir=runs/sciworld --config.mesh.fsdp=-1

Needs: the extra [sciworld] and Java; nothing running (it starts its own server, give it more
workers with --config.env.workers=N); about 16 bytes per weight of accelerator memory in all, plus
the caches: one 80 GB chip for 3b, four for 7b.
Result: not run yet.
Source: AgentGym-RL, arXiv:2509.08755: turn limits and period of its table, tasks, samples and
tokens of its released script; as there the reward is the simulator's score, not success alone.
"""

from configs import common
from configs.rl import babyai_scalinginter


def get_config(arg=None):
    """Options: size=0p5b|1p5b|3b|7b; smoke (a tiny random policy, no download)."""
    opt = common.parse(arg, size="7b", smoke=False)
    c = babyai_scalinginter.get_config(f"size={opt.size}")
    # ScienceWorld's own sets: AgentGym's evaluation ids overlap its training ids.
    c.environments = dict(
        sciworld=common.environment(
            train=dict(kind="split", split="train", group_by="topic", where={}, limit=2120),
            eval=dict(kind="split", split="test", group_by="topic", where={}, limit=200),
        )
    )
    c.env.workers = 4  # Java virtual machines
    c.rollout.tasks_per_step = 16
    c.rollout.reward = "score"
    c.learner.mini_batches = 2
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=200, max_tokens=9216)
    c.sampler.cache_length = 9216
    c.learner.row_length = 9216
    c.horizon = dict(kind="periodic", turns=(10, 20, 30), period=100)
    c.evaluation.max_turns = 30
    if opt.smoke:
        common.smoke(c)
        c.env.workers = 1
    return c
