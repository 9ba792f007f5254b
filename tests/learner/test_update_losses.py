"""Updates with a loss over whole episodes."""

import functools

import pytest

from agentgym_jax.algorithms import losses
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import assert_close, gradient, make_learner

pytestmark = pytest.mark.usefixtures("compiled_fast")


@pytest.fixture(scope="module")
def gspo():
    loss = functools.partial(losses.sequence_surrogate, clip_low=0.05, clip_high=0.1)
    return make_learner(token_loss=loss)


@pytest.mark.slow
def test_micro_batch_split_and_order_leave_the_gradient_of_episode_ratios_unchanged(gspo):
    made = token_sequences()
    whole, metrics = gradient(gspo, pack_sequences(made, micro_rows=8))
    split, split_metrics = gradient(gspo, pack_sequences(made[::-1], micro_rows=2))
    assert 0 < metrics["clip_fraction"] < 1
    assert_close(split, whole)
    assert_close(split_metrics, metrics)
