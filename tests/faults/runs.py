"""Small runs on the tally environment, and what must be equal between two of them."""

import collections
import contextlib
import json
import pathlib

import jax
import numpy as np

from agentgym_jax.env_client.embedded import EmbeddedServers
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.run.rl import open_rl
from agentgym_jax.run.run import StopFlag, StopRequested
from agentgym_jax.run.sections import plain
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.training import rl
from configs import common

STEPS = 3
TASKS, GROUP = 4, 2
# Does not say how the run went, but how the environments or the clock did.
OF_THE_WAY = ("attempts", "seconds")


def config(url, *, steps=STEPS, **pool):
    """A run that takes seconds: three steps of eight episodes of up to three turns."""
    c = common.base()
    c.model = common.tiny_model()
    c.model.architecture.num_layers = 1
    c.model.architecture.hidden_size = 16
    c.tokenizer.source = "bytes"
    c.total_steps = steps
    with c.unlocked():
        c.environments = {
            "tally": common.environment(url=url, train=_tasks(0, 60), eval=_tasks(60, 62))
        }
    c.client = dict(connect_timeout_s=5.0, step_timeout_s=10.0)
    with c.pool.unlocked():
        c.pool.update(workers=8, breaker_failures=4, **pool)
    c.sampler = dict(
        rows=8, decode_rows=0, cache_length=256, buckets=((64, 8),), decode_steps=4, wake_rows=1
    )
    c.sampling.max_turn_tokens, c.sampling.max_tokens = 6, 256
    c.rollout.tasks_per_step, c.rollout.group_size = TASKS, GROUP
    c.rollout.max_attempts = 20
    c.rollout.opening = "none"
    c.horizon = dict(kind="fixed", turns=4)
    c.algorithm.kl_coef = 0.0
    c.optimizer.learning_rate = 3e-3
    c.learner.row_length, c.learner.micro_rows = 256, 8
    c.learner.row_halvings = 0
    c.learner.min_informative_groups = 0
    c.evaluation.every, c.evaluation.at_start = 0, False
    c.checkpoint.every = 1
    return plain(c)


def _tasks(start, stop):
    return dict(kind="residues", start=start, stop=stop, modulus=1, groups={"tally": 0})


def train(config, workdir, stop=None):
    """Runs to the end; True if it was asked to stop before."""
    try:
        with open_rl(config, str(workdir), stop or StopFlag()) as (run, parts):
            rl.train(run, parts)
    except StopRequested:
        return True
    return False


@contextlib.contextmanager
def serving(log_folder=None):
    """A server of its own process: `urls`, `pids`, and `ensure_alive` after a kill."""
    with EmbeddedServers(
        ["tally"], modules={"tally": "tests.faults.tally"}, log_folder=log_folder
    ) as servers:
        yield servers


def lines(workdir):
    """The lines of metrics.jsonl."""
    text = (pathlib.Path(workdir) / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def result(workdir):
    """All that a run has to show: weights, what was learned at each step, every episode."""
    workdir = pathlib.Path(workdir)
    source = resolve(str(workdir))
    with Checkpoints(workdir / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        last = checkpoints.latest_step()
        params = checkpoints.restore_params(last, Policy(source.config).abstract_params())
    learned = [
        {k: v for k, v in line.items() if k == "step" or k.startswith(("policy/", "batch/"))}
        for line in lines(workdir)
    ]
    return last, params, learned, episodes(workdir)


def episodes(workdir):
    """The records of every step, in their order."""
    folder = RunFolder(workdir)
    return [
        [
            {k: v for k, v in record.items() if k not in OF_THE_WAY}
            for record in folder.read_trajectories(step)
        ]
        for step in folder.trajectory_steps()
    ]


def env_errors(workdir):
    """What the run counted: cause -> failures of an environment."""
    counts = collections.Counter()
    for line in lines(workdir):
        for name, value in line.items():
            if name.startswith("rollout/env_errors/"):
                counts[name.rpartition("/")[2]] += int(value)
    return counts


def expected_errors(delivered):
    """What a run must have counted, by what the proxy saw its client get.

    A start that met a broken connection is made again by client and pool; a session that is not
    closed says nothing about an episode.
    """
    counts = collections.Counter()
    for (route, cause), count in delivered.items():
        if route == "/step" or route != "/close" and cause != "connection":
            counts[cause] += count
    return counts


def lost_episodes(workdir):
    """Episodes that ended by a fault of the environment, or that another sample replaced."""
    records = [record for step in episodes(workdir) for record in step]
    return sum(r["outcome"] == "env_error" or r["sample"] >= GROUP for r in records)


def assert_same(workdir, reference):
    """Two runs came to the same end by the same steps, bit for bit."""
    last, params, learned, played = result(workdir)
    expected_last, expected_params, expected_learned, expected_played = result(reference)
    assert last == expected_last
    assert played == expected_played
    assert learned == expected_learned
    jax.tree.map(np.testing.assert_array_equal, params, expected_params)
