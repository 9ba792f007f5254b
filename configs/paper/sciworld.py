r"""AgentGym-RL's SciWorld: Qwen2.5-7B-Instruct, GRPO, the horizon 10 -> 20 -> 30 turns or 20 from the start.

  python -m agentgym_jax.train --config=configs/paper/sciworld.py:size=7b --workdir=runs/sciworld
  python -m agentgym_jax.train --config=configs/paper/sciworld.py:horizon=fixed --workdir=runs/sciworld_fixed

Needs: the extra [sciworld] and Java; accelerators (configs/paper/common.py); nothing running (it starts its
own server; --config.env.workers=N gives it more workers).
Result: not run, but for the smoke variant. Published success of 200 tasks: 57 % (7b, scaling), 50.5 % (7b,
fixed), 22.5 % (3b, fixed).
Source: AgentGym-RL, arXiv:2509.08755, and its released scripts, value by value; what differs is listed in
configs/paper/common.py. The two scripts differ in the tokens of an episode as well. The reward is the
simulator's score in 0 .. 1 (-1 for a failure), in the release 0 .. 100 (-100); with the deviation of the group
in the advantage that is the same. Training and test tasks are ScienceWorld's own sets: the release's overlap.
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
    """Options: size=7b|3b|1p5b|0p5b; horizon=scaling|fixed; smoke (a tiny random policy)."""
    opt = common.parse(arg, size="7b", horizon="scaling", smoke=False)
    c = paper.get_config(opt.size, opt.horizon, SCRIPTS, eval_turns=30)
    c.environments = dict(
        sciworld=common.environment(
            train=dict(kind="split", split="train", group_by="topic", where={}, limit=2120),
            eval=dict(kind="split", split="test", group_by="topic", where={}, limit=200),
        )
    )
    c.env.workers = 4  # Java virtual machines
    c.rollout.reward = "score"  # AgentGym's client of SciWorld: the reward of a step is its score
    if opt.smoke:
        common.smoke(c)
        c.env.workers = 1
    return c
