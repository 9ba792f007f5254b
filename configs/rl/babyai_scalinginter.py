r"""Qwen2.5 on BabyAI with GRPO and the ScalingInter-RL horizon 6 -> 13 -> 20 turns.

  python -m agentgym_jax.train --config=configs/rl/babyai_scalinginter.py:size=7b \
      --workdir=runs/babyai --config.model.source=Qwen/Qwen2.5-7B-Instruct --config.mesh.fsdp=-1

Needs: nothing running (it starts its own server); about 16 bytes per weight of accelerator memory
in all, plus the caches: one 80 GB chip for 3b, four for 7b.
Result: only three steps of the 0.5B model at horizon 2 on CPU (experiments/LOG.md).
Source: AgentGym-RL, arXiv:2509.08755: turn limits and period of its table, tasks, samples and
tokens of its released script.
"""

from configs import common

HUB = {"0p5b": "0.5B", "1p5b": "1.5B", "3b": "3B", "7b": "7B"}


def get_config(arg=None):
    """Options: size=0p5b|1p5b|3b|7b; smoke (a tiny random policy, no download)."""
    opt = common.parse(arg, size="7b", smoke=False)
    c = common.base()
    c.total_steps = 300
    c.model.source = f"Qwen/Qwen2.5-{HUB[opt.size]}-Instruct"
    c.mesh = dict(data=1, fsdp=-1, tensor=1)
    # AgentGym-RL has 810 training and 90 test items; its list is not public, the rule here is:
    # the server's own split, by seed.
    c.environments = dict(
        babyai=common.environment(
            train=dict(kind="split", split="train", group_by="family", where={}, limit=810),
            eval=dict(kind="split", split="test", group_by="family", where={}, limit=90),
        )
    )
    c.rollout.tasks_per_step = 32
    c.rollout.group_size = 8
    c.learner.mini_batches = 4  # 8 tasks each
    c.learner.row_length = 8192
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=512, max_tokens=8192)
    c.sampler.cache_length = 8192
    c.horizon = dict(kind="periodic", turns=(6, 13, 20), period=100)
    c.evaluation = dict(every=25, at_start=True, max_turns=20, samples=1, greedy=False)
    c.checkpoint.every = 25
    if opt.smoke:
        common.smoke(c)
    return c
