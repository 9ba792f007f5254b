r"""The quickstart on deep search: a tiny policy learns to look up codes in the corpus of facts.

  python -m agentgym_jax.train --config=configs/quickstart_searchqa.py --workdir=runs/searchqa

Needs: the extra [search]; no running server (the command starts one, which builds the corpus at its
first start); two CPU cores, 2 GB of memory.
Result: RL does not help yet. 96 held-out questions, seed 0, 12 steps: sampled 47.9 -> 47.9 %,
greedy 65.6 -> 55.2 %. On the training questions, which the warm start demonstrates, success is
71 to 91 % (experiments/LOG.md). That run drew the three templates equally often. The current code
draws all tasks equally often. Trials with other questions in RL failed, too; a pretrained model
learns (configs/rl/searchqa_qwen.py, experiments/2026-11-25_qwen_search).
Source: the sizes of configs/quickstart.py; the server's manifest splits the questions by entity.
"""

from agentgym_jax.configs import common, quickstart

# The policy has to copy a name from the question into the query and a code from the passage into
# the answer. One search is enough for each question.
TEMPLATES = ("airport_code", "language_code", "division_code")


def tasks(split, limit=0):
    """Returns the selection of questions about the codes of airports, languages and divisions."""
    return dict(
        kind="split", split=split, group_by="template", where=dict(template=TEMPLATES), limit=limit
    )


def get_config(arg=None):
    """Returns the config. Options: smoke (one minute, learns nothing)."""
    opt = common.parse(arg, smoke=False)
    c = quickstart.get_config("smoke" if opt.smoke else None)
    passage = dict(topk=1)  # short observations
    c.environments = dict(
        searchqa=common.environment(
            options=passage, train=tasks("train"), eval=tasks("test", limit=96)
        )
    )
    c.total_steps = 12
    c.tokenizer.vocab_size = 1024
    c.tokenizer.pretokenizer_pattern = r"[A-Z]|[0-9]|\n|, |</?(?:think|search|answer|information)>"
    c.sampling.max_turn_tokens = 96
    c.rollout.max_parse_errors = 2
    c.horizon = dict(kind="stepwise", turns=(2, 3, 4), boundaries=(4, 8))
    c.evaluation.max_turns = 4
    with c.unlocked():
        c.sft.demonstrations = dict(
            expert=dict(
                environment="searchqa",
                options=passage,
                agent="expert",
                tasks=tasks("train"),
                epsilon=0.0,
                max_turns=6,
                seed=0,
            )
        )
    c.sft.steps = 400
    c.sft.row_length = 768
    if opt.smoke:
        c.total_steps = 3
        c.environments.searchqa.eval.limit = 4
        c.sft.demonstrations.expert.tasks.limit = 20
        c.sft.steps = 3
        c.horizon = dict(kind="stepwise", turns=(2, 3), boundaries=(1,))
        c.evaluation.max_turns = 3
    return c
