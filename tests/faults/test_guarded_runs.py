"""Guards in a whole run: their findings affect the update, the log and the stop."""

import jax
import numpy as np
import pytest

from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.telemetry.guards import GuardStop, History
from tests.faults import runs

NO_GAP = 1e-12  # sampler and learner are different programs, so their gap always exceeds this limit


def config(url, **guards):
    made = runs.config(url, steps=2)
    made["learner"]["max_logprob_gap"] = NO_GAP
    made["guards"] = ",".join(f"{name}={value}" for name, value in guards.items()) or "default"
    return made


def saved(workdir):
    """Returns the saved weights by step."""
    with Checkpoints(workdir / "checkpoints", max_to_keep=2, read_only=True) as checkpoints:
        abstract = Policy(resolve(str(workdir)).config).abstract_params()
        steps = checkpoints.steps()
        return {step: checkpoints.restore_params(step, abstract) for step in steps}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guard", "options"),
    [
        ("entropy_collapse", dict(logprob_gap="warn", window=1, entropy_floor=1e9)),
        ("logprob_gap", {}),
    ],
)
def test_steps_skipped_by_a_guard_do_not_change_the_weights(guard, options, url, tmp_path):
    runs.train(config(url, **{guard: "skip"}, **options), tmp_path / "run")
    lines = [line for line in runs.lines(tmp_path / "run") if line["step"]]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["policy/updates"] == 0 and line["policy/skipped"] == 1
        assert line[f"guards/{guard}"] == line["guards/tripped"] == 1
    weights = saved(tmp_path / "run")
    assert set(weights) == {1, 2}
    jax.tree.map(np.testing.assert_array_equal, weights[1], weights[2])


@pytest.mark.slow
def test_a_run_stopped_by_a_guard_saves_the_step_and_its_weights(url, tmp_path):
    with pytest.raises(GuardStop, match="stopped after step 1, which is saved: guard logprob_gap"):
        runs.train(config(url, logprob_gap="stop"), tmp_path / "run")
    assert [line["step"] for line in runs.lines(tmp_path / "run")][-1] == 1
    assert max(saved(tmp_path / "run")) == 1


@pytest.mark.slow
def test_a_step_whose_loss_is_nan_is_logged_and_saved_without_its_update(url, tmp_path):
    """Checks a run whose first update is so large that the loss of the second step is NaN.

    Rollouts use the weights before the last update.
    """
    diverging = config(url, logprob_gap="warn", nonfinite="stop")
    diverging["total_steps"] = 4
    diverging["optimizer"]["learning_rate"] = 1e30
    diverging["rollout"]["max_off_policy_steps"] = 1
    with pytest.raises(GuardStop, match="stopped after step 2, which is saved: guard nonfinite"):
        runs.train(diverging, tmp_path / "run")
    lines = [line for line in runs.lines(tmp_path / "run") if line["step"]]
    assert [line["step"] for line in lines] == [1, 2]
    assert [line["policy/nonfinite"] for line in lines] == [0, 1]
    assert lines[1]["guards/nonfinite"] == 1 and "guards/nonfinite" not in lines[0]

    weights = saved(tmp_path / "run")
    assert set(weights) == {1, 2}
    jax.tree.map(np.testing.assert_array_equal, weights[1], weights[2])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights[2]))
    with Checkpoints(tmp_path / "run/checkpoints", max_to_keep=2, read_only=True) as checkpoints:
        extra = checkpoints.restore_extra(2)
        behaviour = checkpoints.restore_behaviour(2, jax.eval_shape(lambda: {"1": weights[1]}))
    # The metrics of the step were logged before the checkpoint was saved, so none are unlogged.
    assert extra["unlogged"] is None
    history = History.from_json(extra["guards"])
    assert history.nonfinite_steps == 1 and "nonfinite" in history.seen
    jax.tree.map(np.testing.assert_array_equal, behaviour["1"], weights[1])
