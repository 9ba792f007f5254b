r"""Qwen2.5 on deep search with GRPO and the ScalingInter-RL horizon 5 -> 8 -> 10 turns.

  python -m agentgym_jax.train --config=configs/rl/searchqa_scalinginter.py:size=7b \
      --workdir=runs/searchqa --config.mesh.fsdp=-1

As it stands it searches the corpus of facts, which its server builds at the first start. The paper's
questions in FlashRAG's layout, with a server of Search-R1's protocol or a corpus:

      --config=configs/rl/searchqa_scalinginter.py:questions=flashrag,retriever=http://127.0.0.1:8000

Needs: the extra [search]; nothing running but that retriever; about 16 bytes per weight of
accelerator memory in all, plus the caches: one 80 GB chip for 3b, four for 7b.
Result: not run yet, but for the smoke variant.
Source: AgentGym-RL, arXiv:2509.08755: turn limits and period of its table, tasks, samples and
tokens of its released script.
"""

from configs import common
from configs.rl import babyai_scalinginter


def get_config(arg=None):
    """Options: size=0p5b|1p5b|3b|7b; questions, corpus, retriever (of the environment); smoke (a
    tiny random policy, no download)."""
    opt = common.parse(arg, size="7b", questions="", corpus="", retriever="", smoke=False)
    data = {name: opt[name] for name in ("questions", "corpus", "retriever") if opt[name]}
    c = babyai_scalinginter.get_config(f"size={opt.size}")
    c.environments = dict(
        searchqa=common.environment(
            options=data,
            train=dict(kind="split", split="train", group_by="dataset", where={}, limit=0),
            # 400 questions, as many as the paper asks.
            eval=dict(kind="split", split="test", group_by="dataset", where={}, limit=400),
        )
    )
    c.rollout.group_size = 4
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=512, max_tokens=9216)
    c.sampler.cache_length = 9216
    c.learner.row_length = 9216
    c.horizon = dict(kind="periodic", turns=(5, 8, 10), period=100)
    c.evaluation.max_turns = 30
    if opt.smoke:
        common.smoke(c)
    return c
