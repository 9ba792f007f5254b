r"""Trains Qwen2.5-7B-Instruct with GRPO on SciWorld, as AgentGym-RL's released scripts do.

The turn limit grows (10, 20, 30) or is fixed at 20.

  python -m agentgym_jax.train --config=configs/paper/sciworld.py:size=7b --workdir=runs/sciworld
  python -m agentgym_jax.train --config=configs/paper/sciworld.py:horizon=fixed --workdir=runs/sciworld_fixed

Needs: the extra [sciworld] and Java; accelerators (configs/paper/common.py); no running server (the
command starts one; --config.env_server.workers=N sets its number of workers).
Result: only the smoke variant has been run. Published success on 200 tasks: 57 % (7b, scaling),
50.5 % (7b, fixed), 22.5 % (3b, fixed).
Source: AgentGym-RL's released scripts (arXiv:2509.08755). All values are theirs, except for the
differences that configs/paper/common.py lists. The scaling and the fixed script also differ in the
token limit of an episode. The reward is the simulator's score, which ranges from 0 to 1 here (-1
for a failure) and from 0 to 100 (-100) in the release. The advantage divides by the group's
standard deviation, so both scales are equivalent. This reward can teach a policy not to end an
episode (experiments/2026-11-26_sciworld_reward): set `rollout.reward="success"` if success
counts. Training and test tasks are ScienceWorld's own sets, which do not overlap. The sets of the
release overlap.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import common as paper

# Both scripts: sciworld_train.sh. The release has 2120 training ids.
SHARED = dict(tasks=16, samples=8, mini_batch=8, turn_tokens=200, steps=10 * (2120 // 16))
SCRIPTS = dict(
    # examples/train/ScalingInter-RL/sciworld_train.sh
    scaling=SHARED | dict(turns=(10, 20, 30), period=100, tokens=1024 + 8192),
    # examples/train/AgentGym-RL/sciworld_train.sh
    fixed=SHARED | dict(turns=20, period=None, tokens=1024 + 4096),
)


def get_config(arg=None):
    """Returns the config.

    Options: size=32b|7b|3b|1p5b|0p5b; horizon=scaling|fixed; chips (a slice of
    configs/paper/common.py); smoke (a tiny random policy).
    """
    opt = common.parse(arg, size="7b", horizon="scaling", chips="", smoke=False)
    c = paper.get_config(opt.size, opt.horizon, SCRIPTS, eval_turns=30, chips=opt.chips)
    c.environments = dict(
        sciworld=common.environment(
            train=dict(kind="split", split="train", group_by="topic", where={}, limit=2120),
            eval=dict(kind="split", split="test", group_by="topic", where={}, limit=200),
        )
    )
    c.env_server.workers = 4  # number of Java virtual machines
    # In AgentGym's client of SciWorld, the reward of a step is the score in the server's answer.
    c.rollout.reward = "score"
    if opt.smoke:
        common.smoke(c)
        c.env_server.workers = 1
    return c
