r"""Trains one Qwen2.5 model with GRPO on several environments, each with its own horizon.

  python -m agentgym_jax.train --config=configs/rl/mixture.py:size=7b --workdir=runs/mixture \
      --config.environments.babyai.weight=2 --config.mesh.fsdp=-1

Needs: no running server (the command starts one for each environment); accelerators
(configs/paper/common.py).
Result: only the smoke variant has been run (also with searchqa and webarena).
Source: tasks, turn limits and periods of configs/paper; batch size and number of samples of
configs/paper/textcraft.py. AgentGym-RL trains a separate model per environment. AgentGym,
arXiv:2406.04151, trains one model for all environments; the turn limits of Maze and Wordle are from
the same paper. The reward is success in every environment, so that all rewards have the same unit.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import babyai, sciworld, searchqa, textcraft, webarena


def alone(config, name):
    """Returns an environment's entry, with the tasks and limits of its single-environment config."""
    return dict(
        config.environments[name],
        horizon=config.horizon,
        eval_max_turns=config.evaluation.max_turns,
    )


def plain(group_by, turns):
    """Returns an entry with all tasks of the server's two splits and a constant turn limit."""
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
    """Returns the config.

    Options: environments=textcraft+babyai+sciworld+searchqa+webarena+maze+wordle, any of them;
    size=0p5b|1p5b|3b|7b; smoke.
    """
    opt = common.parse(arg, environments="textcraft+babyai", size="7b", smoke=False)
    c = textcraft.get_config(f"size={opt.size}")  # TextCraft has the longest episodes
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
    # This default applies to environments without a horizon; all environments here have one.
    c.horizon = dict(kind="fixed", turns=20)
    c.evaluation.max_turns = 20
    if opt.smoke:
        common.smoke(c)
        c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 3072
        if "babyai" in chosen:
            c.environments.babyai.horizon = dict(kind="stepwise", turns=(1, 3), boundaries=(1,))
            c.environments.babyai.eval_max_turns = 3
    return c
