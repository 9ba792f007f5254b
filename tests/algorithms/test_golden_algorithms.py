"""Agreement with a NumPy transcription of the papers (tests/golden/algorithms/make.py)."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import advantages, kl, losses
from agentgym_jax.algorithms.episode_sums import Episodes
from tests.builders import policy_tokens

pytestmark = pytest.mark.usefixtures("compiled_fastest")

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "algorithms" / "golden.json"


@pytest.fixture(scope="module")
def golden():
    return {k: np.asarray(v) for k, v in json.loads(GOLDEN.read_text()).items()}


@pytest.fixture(scope="module")
def episodes(golden):
    return Episodes(
        reward_BT=jnp.asarray(golden["rewards"], jnp.float32),
        action_mask_BT=jnp.asarray(golden["mask"]),
        valid_B=jnp.asarray(golden["valid"]),
        turn_BT=jnp.asarray(golden["turns"], jnp.int32),
        anchor_BT=jnp.asarray(golden["anchors"], jnp.int32),
        value_BT=jnp.zeros(golden["rewards"].shape, jnp.float32),
        group_size=int(golden["group_size"]),
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("group_relative", dict(std_normalize=True)),
        ("leave_one_out", {}),
        ("batch_normalized_returns", dict(discount=0.97, turn_discount=0.9)),
        ("group_mean_batch_normalized", {}),
        ("group_in_group", dict(step_weight=0.7, turn_discount=0.95, std_normalize=True)),
    ],
)
def test_advantages_agree_with_the_transcription(golden, episodes, name, options):
    found = jax.jit(functools.partial(getattr(advantages, name), **options))(episodes)
    # float32 is compared with float64; dividing by a group deviation of about 0.2 magnifies the
    # error
    np.testing.assert_allclose(found, golden[name], rtol=2e-5, atol=1e-6)


def test_k3_agrees_with_the_transcription(golden):
    found = kl.k3(
        jnp.asarray(golden["logprob"], jnp.float32), jnp.asarray(golden["reference"], jnp.float32)
    )
    np.testing.assert_allclose(found, golden["k3"], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("clipped_surrogate", dict(clip_low=0.2, clip_high=0.28)),
        ("sequence_surrogate", dict(clip_low=0.05, clip_high=0.1)),
        ("clipped_weight", dict(ratio_low=0.8, ratio_high=1.25)),
    ],
)
def test_losses_agree_with_the_transcription(golden, name, options):
    arrays = [
        jnp.asarray(golden[k], jnp.float32) for k in ("logprob", "reference", "group_relative")
    ]
    loss = jax.jit(functools.partial(getattr(losses, name), **options))
    found = loss(policy_tokens(*arrays, jnp.asarray(golden["mask"], jnp.int32)))
    np.testing.assert_allclose(found.loss_BT, golden[name], rtol=2e-5, atol=1e-6)
