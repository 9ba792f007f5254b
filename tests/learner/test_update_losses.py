"""Updates with a loss over whole episodes."""

import functools

import jax
import numpy as np
import pytest

from agentgym_jax.algorithms import losses
from agentgym_jax.learner import update
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import make_learner

pytestmark = pytest.mark.usefixtures("compiled_fast")


@pytest.fixture(scope="module")
def gspo():
    loss = functools.partial(losses.sequence_surrogate, clip_low=0.05, clip_high=0.1)
    return make_learner(token_loss=loss)


def step(learner, batch):
    """Returns the gradient of one step (ten times Adam's first moment) and the step's metrics."""
    state, metrics = learner.update(learner.state(), update.put_batch(batch))
    found = jax.tree.leaves(state.opt_state, is_leaf=lambda x: hasattr(x, "mu"))
    (adam,) = [x for x in found if hasattr(x, "mu")]
    return jax.tree.map(lambda m: 10.0 * np.array(m), adam.mu), jax.device_get(metrics)


@pytest.mark.slow
def test_micro_batch_split_and_order_leave_the_gradient_of_episode_ratios_unchanged(gspo):
    made = token_sequences()
    whole, metrics = step(gspo, pack_sequences(made, micro_rows=8))
    split, split_metrics = step(gspo, pack_sequences(made[::-1], micro_rows=2))
    assert 0 < metrics["clip_fraction"] < 1

    def compare(a, b):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * np.abs(b).max())

    jax.tree.map(compare, split, whole)
    jax.tree.map(compare, split_metrics, metrics)
