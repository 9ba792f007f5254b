r"""Trains Qwen2.5-7B-Instruct with GRPO on BabyAI, as AgentGym-RL's released scripts do.

The turn limit grows (6, 13, 20) or is fixed at 20.

  python -m agentgym_jax.train --config=configs/paper/babyai.py:size=7b --workdir=runs/babyai
  python -m agentgym_jax.train --config=configs/paper/babyai.py:horizon=fixed --workdir=runs/babyai_fixed

Needs: accelerators (configs/paper/common.py); no running server (the command starts one).
Result: only the smoke variant has been run. Published success on 90 tasks: 96.7 % (7b, scaling),
92.2 % (7b, fixed), 93.3 % (3b, fixed).
Source: AgentGym-RL's released scripts (arXiv:2509.08755). All values are theirs, except for the
differences that configs/paper/common.py lists. The scaling and the fixed script also differ in
values other than the horizon. The reward is the score of our BabyAI environment with its default
rules. The release uses AgentGym's rules, which a server started with --compat follows.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import common as paper

# The release has 810 training ids.
SCRIPTS = dict(
    # examples/train/ScalingInter-RL/babyai_train.sh
    scaling=dict(
        turns=(6, 13, 20),
        period=100,
        tasks=32,
        samples=4,
        mini_batch=8,
        tokens=512 + 8192,
        turn_tokens=512,
        steps=20 * (810 // 32),
    ),
    # examples/train/AgentGym-RL/babyai_train.sh
    fixed=dict(
        turns=20,
        period=None,
        tasks=16,
        samples=8,
        mini_batch=8,
        tokens=1024 + 4096,
        turn_tokens=200,
        steps=10 * (810 // 16),
    ),
)


def get_config(arg=None):
    """Returns the config.

    Options: size=32b|7b|3b|1p5b|0p5b; horizon=scaling|fixed; chips (a slice of
    configs/paper/common.py); smoke (a tiny random policy).
    """
    opt = common.parse(arg, size="7b", horizon="scaling", chips="", smoke=False)
    c = paper.get_config(opt.size, opt.horizon, SCRIPTS, eval_turns=20, chips=opt.chips)
    c.environments = dict(
        babyai=common.environment(
            train=dict(kind="split", split="train", group_by="family", where={}, limit=810),
            eval=dict(kind="split", split="test", group_by="family", where={}, limit=90),
        )
    )
    # In AgentGym's client of BabyAI, the reward of a step is the score in the server's answer.
    c.rollout.reward = "score"
    if opt.smoke:
        common.smoke(c)
    return c
