"""Runs with `max_off_policy_steps` above 1: ages of the tokens, stopped and resumed runs."""

import dataclasses

import jax
import numpy as np
import pytest

from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.learner import stored_weights
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.background_rollouts import turn_versions
from agentgym_jax.rl.build import open_rl
from agentgym_jax.telemetry.guards import GuardStop
from configs import common
from tests.faults import runs

STEPS = 6
TURNS = 4

pytestmark = pytest.mark.slow


class StopAfter(StopFlag):
    """A request to stop that arrives during the rollout after some lines of metrics."""

    def __init__(self, workdir, lines):
        super().__init__()
        self.metrics = workdir / "metrics.jsonl"
        self.lines = lines

    def __call__(self):
        if self.metrics.exists() and len(runs.lines(self.metrics.parent)) >= self.lines:
            self._is_set = True
        return super().__call__()


def config(url, k):
    """Returns the config of a run; with k = 2 it trains adapters."""
    made = runs.config(url, steps=STEPS)
    if k == 2:
        made["model"]["lora"] = common.lora(2)
    made["rollout"]["max_off_policy_steps"] = k
    made["evaluation"] = dict(every=2, at_start=True, max_turns=2, samples=1, greedy=False)
    made["checkpoint"]["every"] = 100
    return made


def weights(workdir):
    source = resolve(str(workdir))
    return stored_weights.load(source, Policy(source.config))


@pytest.fixture(scope="module", params=[2, 3])
def uninterrupted(request, url, tmp_path_factory):
    workdir = tmp_path_factory.mktemp(f"uninterrupted{request.param}") / "run"
    runs.train(config(url, request.param), workdir)
    return request.param, workdir


def test_each_turn_has_the_weights_of_the_schedule(uninterrupted):
    k, workdir = uninterrupted
    lines = [line for line in runs.lines(workdir) if line["step"]]
    for step, (line, records) in enumerate(zip(lines, runs.episodes(workdir), strict=True)):
        expected = turn_versions(step, TURNS, k)
        ages = []
        for record in records:
            versions = np.array(record["policy_versions"])
            starts = [turn["action_start"] for turn in record["turns"]]
            assert [versions[i] for i in starts] == list(expected[: len(starts)])
            ages += [step - v for v in versions if v >= 0]
        assert max(ages) <= k
        assert line["policy/off_policy_steps"] == pytest.approx(np.mean(ages))
        assert line["policy/off_policy_steps_max"] == max(ages) == min(step, k)
    assert lines[-1]["policy/mixed_version_episodes"] > 0.5
    tasks = {record["item_id"] for records in runs.episodes(workdir) for record in records}
    assert len(tasks) == STEPS * runs.TASKS  # no task is lost or repeated
    assert len({key for key in lines[-1] if "off_policy_share" in key}) > 1


def test_every_step_compares_sampler_and_learner_with_the_same_weights(uninterrupted):
    lines = [line for line in runs.lines(uninterrupted[1]) if line["step"]]
    assert max(line["policy/logprob_gap_max"] for line in lines) < 1e-4
    assert min(line["policy/stale_gap_mean"] for line in lines[2:]) > 1e-4


def test_wrong_log_probabilities_of_the_sampler_end_a_later_step(url, tmp_path):
    made = config(url, 1)
    made["learner"]["max_logprob_gap"] = 0.1
    with open_rl(made, str(tmp_path / "run"), StopFlag()) as (run, parts):
        sampler = parts.agent.sampler
        finish = sampler.finish

        def finish_wrong():
            factor = 1.0 if sampler.version < 2 else 2.0
            return [dataclasses.replace(t, logprobs=factor * t.logprobs) for t in finish()]

        sampler.finish = finish_wrong
        with pytest.raises(GuardStop, match="stopped after step 4.*guard logprob_gap"):
            rl.train(run, parts)


@pytest.mark.parametrize("lines", [2, 4])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_run(uninterrupted, url, tmp_path, lines):
    k, reference = uninterrupted
    workdir = tmp_path / "run"
    assert runs.train(config(url, k), workdir, StopAfter(workdir, lines))
    assert not runs.train(config(url, k), workdir)
    assert runs.episodes(workdir) == runs.episodes(reference)
    losses = [[line.get("policy/loss") for line in runs.lines(w)] for w in (workdir, reference)]
    assert losses[0] == losses[1]
    jax.tree.map(np.testing.assert_array_equal, weights(workdir), weights(reference))
