r"""Configures the smallest run that still samples and learns in every step, with frequent
checkpoints and evaluations.

  python -m agentgym_jax.train --config=experiments/2026-11-22_soak/config.py --workdir=runs/soak

Needs: no running server (the command starts one for the bandit of configs/rl/bandit.py); one CPU
core.
Result: README.md in this folder.
Source: we chose the smallest sizes that the array shapes of a run allow.
"""

from configs import common
from configs.rl import bandit


def get_config(arg=None):
    """Returns the config.

    Options: steps=2000, transport=http (a server, hence sockets and sessions) or inprocess,
    loggers.
    """
    opt = common.parse(arg, steps=2000, transport="http", loggers="tensorboard")
    c = bandit.get_config("smoke")
    c.total_steps = opt.steps
    c.env_server.transport = opt.transport
    c.loggers = opt.loggers
    c.model = common.tiny_model()
    c.pool.workers = 4
    c.sampler = dict(
        rows=16, cache_length=128, buckets=((16, 8),), decode_steps=4, return_after_finished=8
    )
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 4
    c.learner.micro_rows = 4
    c.learner.mini_batches = 1
    c.learner.min_informative_groups = 0
    c.optimizer.schedule = "constant"
    c.optimizer.learning_rate = 3e-4
    c.evaluation = dict(every=100, at_start=True, max_turns=bandit.PULLS, samples=1, greedy=False)
    c.environments.bandit.eval.limit = 16
    c.checkpoint = dict(every=50, max_to_keep=2, keep_every=0)
    # with an entropy bonus a tiny policy would only learn to act randomly
    c.algorithm.entropy_coef = 0.0
    c.sft.steps = 100
    return c
