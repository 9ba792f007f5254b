"""Small runs in the tally environment, and the results that must be equal in two runs."""

import collections
import contextlib
import json
import pathlib

import jax
import numpy as np

from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.config.sections import plain
from agentgym_jax.jobs.run import StopFlag, StopRequested
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.build import open_rl
from agentgym_jax.runs.run_folder import RunFolder
from configs import common
from tests.waiting import PATIENCE_S

STEPS = 3
TASKS, GROUP = 4, 2
# Fields of an episode record that depend on faults or on the clock.
OF_THE_WAY = ("attempts", "seconds")


def config(url, *, steps=STEPS, **pool):
    """Returns the config of a run that takes some seconds.

    The run has three steps of eight episodes of up to three turns.
    """
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
    c.client = dict(connect_timeout_s=PATIENCE_S, step_timeout_s=PATIENCE_S)
    with c.pool.unlocked():
        c.pool.update(workers=8, breaker_failures=4, **pool)
    c.sampler = dict(
        rows=8,
        decode_rows=0,
        cache_length=256,
        buckets=((64, 8),),
        decode_steps=4,
        return_after_finished=1,
    )
    c.sampling.max_turn_tokens, c.sampling.max_tokens = 6, 256
    c.rollout.tasks_per_step, c.rollout.group_size = TASKS, GROUP
    c.rollout.max_attempts = 20
    c.rollout.system_prompt_mode = "none"
    c.horizon = dict(kind="fixed", turns=4)
    c.algorithm.kl_coef = 0.0
    c.optimizer.learning_rate = 3e-3
    c.learner.row_length, c.learner.micro_rows = 256, 8
    c.learner.num_row_lengths = 1
    c.learner.min_informative_groups = 0
    c.evaluation.every, c.evaluation.at_start = 0, False
    c.checkpoint.every = 1
    return plain(c)


def _tasks(start, stop):
    return dict(kind="residues", start=start, stop=stop, modulus=1, groups={"tally": 0})


def train(config, workdir, stop=None):
    """Trains to the end; returns True if a stop request ended the training earlier."""
    try:
        with open_rl(config, str(workdir), stop or StopFlag()) as (run, parts):
            rl.train(run, parts)
    except StopRequested:
        return True
    return False


@contextlib.contextmanager
def serving(log_folder=None):
    """Yields a server in a separate process.

    The server object has `urls`, `pids` and `ensure_alive`, which restarts a killed server.
    """
    with EmbeddedServers(
        ["tally"], modules={"tally": "tests.faults.tally"}, log_folder=log_folder
    ) as servers:
        yield servers


def lines(workdir):
    """Returns the lines of metrics.jsonl."""
    text = (pathlib.Path(workdir) / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def result(workdir):
    """Returns everything that a run computed.

    The result consists of the weights, the learner's metrics at each step, and every episode.
    """
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
    """Returns the episode records of every step in order."""
    folder = RunFolder(workdir)
    return [
        [
            {k: v for k, v in record.items() if k not in OF_THE_WAY}
            for record in folder.read_trajectories(step)
        ]
        for step in folder.trajectory_steps()
    ]


def env_errors(workdir):
    """Returns the environment failures that the run counted, by cause."""
    counts = collections.Counter()
    for line in lines(workdir):
        for name, value in line.items():
            if name.startswith("rollout/env_errors/"):
                counts[name.rpartition("/")[2]] += int(value)
    return counts


def expected_errors(delivered):
    """Returns the failure counts that a run must report for the faults that the proxy delivered.

    The client and the pool repeat a failed start, so it is not counted. A failure to close a
    session does not affect an episode.
    """
    counts = collections.Counter()
    for (route, cause), count in delivered.items():
        if route == "/step" or route != "/close" and cause != "connection":
            counts[cause] += count
    return counts


def lost_episodes(workdir):
    """Returns the number of lost episodes.

    These episodes ended with an environment error or were replaced by another sample.
    """
    records = [record for step in episodes(workdir) for record in step]
    return sum(r["outcome"] == "env_error" or r["sample"] >= GROUP for r in records)


def assert_same(workdir, reference):
    """Checks that two runs have equal weights, metrics and episodes, bit for bit."""
    last, params, learned, played = result(workdir)
    expected_last, expected_params, expected_learned, expected_played = result(reference)
    assert last == expected_last
    assert played == expected_played
    assert learned == expected_learned
    jax.tree.map(np.testing.assert_array_equal, params, expected_params)
