r"""Qwen2.5-0.5B learns to answer questions with a search engine on two CPU cores, with LoRA adapters.

  python -m agentgym_jax.train --config=configs/rl/searchqa_qwen.py:model=DIR,dtype=bfloat16 \
      --workdir=runs/searchqa_qwen

Needs: a Hugging Face directory (or hub id) of a Qwen2.5-0.5B model; the extra [search]; two CPU
cores and 10 GiB of memory in bfloat16 (float32 was not run); no running server (the command starts
one, which builds the corpus at its first start).
Result: success on 100 held-out questions from 9.0 and 5.0 to 67.0 and 74.0 % sampled (two seeds), and
from 4.0 to 71.0 and 80.0 % greedy, in bfloat16 (experiments/2026-11-25_qwen_search).
Source: sizes and rates of configs/rl/babyai_qwen.py; we chose the questions.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import babyai_qwen

INSTRUCTIONS = (
    "Answer the question with the help of a search engine. To search, reply with "
    "<search>query</search> and nothing else; you get a passage. Once you know the answer, reply "
    "with <answer>answer</answer> and nothing else. An answer is a name, a code or a date without "
    "further words."
)


def tasks(split, limit=0):
    """Returns the selection of one-hop questions; the manifest splits questions by entity."""
    return dict(
        kind="split",
        split=split,
        group_by="template",
        where=dict(kind=("single_hop",)),
        limit=limit,
    )


def get_config(arg=None):
    """Returns the config.

    Options: model (a Hugging Face directory, hub id or run folder); dtype=float32|bfloat16 (bfloat16
    is faster on processors with AMX and on accelerators); smoke (a tiny random policy).
    """
    known = dict(dtype=("float32", "bfloat16"))
    opt = common.parse(arg, known, model="Qwen/Qwen2.5-0.5B-Instruct", dtype="float32", smoke=False)
    c = babyai_qwen.get_config(f"model={opt.model},dtype={opt.dtype}")
    c.environments = dict(
        searchqa=common.environment(
            options=dict(topk=1),  # short observations
            train=tasks("train"),
            eval=tasks("test", limit=100),
            instructions=INSTRUCTIONS,
        )
    )
    c.total_steps = 16
    c.sampler.rows = 48
    c.sampling.max_turn_tokens = 40
    c.rollout.tasks_per_step = 6
    c.rollout.max_parse_errors = 3
    # Without a penalty, the policy replies without tags first and reads the reminder of the tags.
    c.rollout.failed_turn_penalty = 0.1
    c.horizon = dict(kind="fixed", turns=4)
    c.evaluation.max_turns = 4
    if opt.smoke:
        common.smoke(c)
        c.environments.searchqa.eval.limit = 4
        c.model.lora = common.lora(rank=4)
    return c
