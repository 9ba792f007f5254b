"""Guards in a whole run: what they find decides about the update, the log and the end."""

import jax
import numpy as np
import pytest

from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.training.guards import GuardStop
from tests.faults import runs

NO_GAP = 1e-12  # sampler and learner are two programs, which differ by more


def config(url, **guards):
    made = runs.config(url, steps=2)
    made["learner"]["max_logprob_gap"] = NO_GAP
    made["guards"] |= guards
    return made


def saved(workdir):
    """Step -> weights."""
    with Checkpoints(workdir / "checkpoints", max_to_keep=2, read_only=True) as checkpoints:
        abstract = Policy(resolve(str(workdir)).config).abstract_params()
        steps = checkpoints.steps()
        return {step: checkpoints.restore_params(step, abstract) for step in steps}


def test_episodes_that_a_guard_skips_leave_the_weights_as_they_were(url, tmp_path):
    everything_is_sure = dict(entropy_collapse="skip", window=1, entropy_floor=1e9)
    runs.train(config(url, logprob_gap="warn", **everything_is_sure), tmp_path / "run")
    lines = [line for line in runs.lines(tmp_path / "run") if line["step"]]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["policy/updates"] == 0 and line["policy/skipped"] == 1
        assert line["guards/entropy_collapse"] == line["guards/logprob_gap"] == 1
        assert line["guards/tripped"] == 2
    weights = saved(tmp_path / "run")
    assert set(weights) == {1, 2}
    jax.tree.map(np.testing.assert_array_equal, weights[1], weights[2])


def test_a_guard_that_stops_a_run_keeps_the_step_and_its_weights(url, tmp_path):
    with pytest.raises(GuardStop, match="stopped after step 1, which is saved: guard logprob_gap"):
        runs.train(config(url, logprob_gap="stop"), tmp_path / "run")
    assert [line["step"] for line in runs.lines(tmp_path / "run")][-1] == 1
    assert max(saved(tmp_path / "run")) == 1
