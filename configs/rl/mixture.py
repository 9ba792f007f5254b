r"""Qwen2.5 on several environments at once with GRPO: TextCraft and BabyAI, each with its own horizon.

  python -m agentgym_jax.train --config=configs/rl/mixture.py:size=7b --workdir=runs/mixture \
      --config.environments.babyai.weight=2 --config.mesh.fsdp=-1

Needs: nothing running (it starts a server for each environment); about 16 bytes per weight of
accelerator memory in all, plus the caches: one 80 GB chip for 3b, four for 7b.
Result: not run yet, but for the smoke variant.
Source: the tasks, turn limits and periods of AgentGym-RL, arXiv:2509.08755, which trains one model
per environment; training one model on all of them is AgentGym's idea, arXiv:2406.04151.
"""

from configs import common
from configs.rl import babyai_scalinginter, textcraft_scalinginter


def entries():
    """The environments to choose from: tasks and horizon as where they are trained alone."""
    single = dict(textcraft=textcraft_scalinginter, babyai=babyai_scalinginter)
    found = {}
    for name, module in single.items():
        alone = module.get_config()
        found[name] = dict(
            alone.environments[name],
            horizon=alone.horizon,
            eval_max_turns=alone.evaluation.max_turns,
        )
    return found


def get_config(arg=None):
    """Options: environments=textcraft+babyai; size=0p5b|1p5b|3b|7b; smoke (tiny random policy)."""
    opt = common.parse(arg, environments="textcraft+babyai", size="7b", smoke=False)
    c = textcraft_scalinginter.get_config(f"size={opt.size}")  # its episodes are the longest
    known = entries()
    chosen = opt.environments.split("+")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"unknown environment {unknown[0]!r}; known: {', '.join(known)}")
    c.environments = {name: known[name] for name in chosen}
    # Of environments that have no limits of their own: all of these have.
    c.horizon = dict(kind="fixed", turns=20)
    c.evaluation.max_turns = 20
    if opt.smoke:
        common.smoke(c)
        c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 3072
        if "babyai" in chosen:
            c.environments.babyai.horizon = dict(kind="stepwise", turns=(1, 3), boundaries=(1,))
            c.environments.babyai.eval_max_turns = 3
    return c
