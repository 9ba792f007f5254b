r"""Qwen2.5 on several environments at once with GRPO: TextCraft and BabyAI, each with its own horizon.

  python -m agentgym_jax.train --config=configs/rl/mixture.py:size=7b --workdir=runs/mixture \
      --config.environments.babyai.weight=2 --config.mesh.fsdp=-1

Needs: nothing running (it starts a server for each environment); accelerators (configs/paper/common.py).
Result: not run, but for the smoke variant (also with searchqa and webarena in it).
Source: tasks, turn limits and periods of configs/paper, batch and samples of its TextCraft; AgentGym-RL
trains a model per environment. One model for all, and the turn limits of Maze and Wordle: AgentGym,
arXiv:2406.04151. The reward is success everywhere, so that environments are in one unit.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import babyai, sciworld, searchqa, textcraft, webarena


def alone(config, name):
    """The entry of an environment that has a config of its own, with the limits it has there."""
    return dict(
        config.environments[name],
        horizon=config.horizon,
        eval_max_turns=config.evaluation.max_turns,
    )


def plain(group_by, turns):
    """All tasks of an environment, by the server's split, with the same turn limit at all times."""
    train, test = (
        dict(kind="split", split=split, group_by=group_by, where={}, limit=0)
        for split in ("train", "test")
    )
    return common.environment(
        train=train,
        eval=test,
        horizon=dict(kind="fixed", turns=turns),
        eval_max_turns=turns,
    )


def get_config(arg=None):
    """Options: environments=textcraft+babyai+sciworld+searchqa+webarena+maze+wordle, any of them;
    size=0p5b|1p5b|3b|7b; smoke."""
    opt = common.parse(arg, environments="textcraft+babyai", size="7b", smoke=False)
    c = textcraft.get_config(f"size={opt.size}")  # its episodes are the longest
    known = dict(
        textcraft=alone(c, "textcraft"),
        babyai=alone(babyai.get_config(), "babyai"),
        sciworld=alone(sciworld.get_config(), "sciworld"),
        searchqa=alone(searchqa.get_config(), "searchqa"),
        webarena=alone(webarena.get_config(), "webarena"),
        maze=plain("distance", turns=15),
        wordle=plain("split", turns=8),
    )
    chosen = opt.environments.split("+")
    for name in chosen:
        common.check_known("environment", name, known)
    c.environments = {name: known[name] for name in chosen}
    if "webarena" in chosen:
        c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 14848
    # For environments without limits of their own; all of these have some.
    c.horizon = dict(kind="fixed", turns=20)
    c.evaluation.max_turns = 20
    if opt.smoke:
        common.smoke(c)
        c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 3072
        if "babyai" in chosen:
            c.environments.babyai.horizon = dict(kind="stepwise", turns=(1, 3), boundaries=(1,))
            c.environments.babyai.eval_max_turns = 3
    return c
