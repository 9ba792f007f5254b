"""Agreement with a plain NumPy transcription of the papers (tests/golden/algorithms/make.py)."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import advantages, kl, losses

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "algorithms" / "golden.json"


@pytest.fixture(scope="module")
def golden():
    return {k: np.asarray(v) for k, v in json.loads(GOLDEN.read_text()).items()}


@pytest.mark.parametrize("name", ["group_relative", "leave_one_out"])
def test_advantages_agree_with_the_transcription(golden, name):
    found = getattr(advantages, name)(
        jnp.asarray(golden["rewards"], jnp.float32),
        jnp.asarray(golden["mask"]),
        jnp.asarray(golden["valid"]),
        group_size=int(golden["group_size"]),
    )
    # float32 against float64; the deviation of a group divides by about 0.2
    np.testing.assert_allclose(found, golden[name], rtol=2e-5, atol=1e-6)


def test_k3_agrees_with_the_transcription(golden):
    found = kl.k3(
        jnp.asarray(golden["logprob"], jnp.float32), jnp.asarray(golden["reference"], jnp.float32)
    )
    np.testing.assert_allclose(found, golden["k3"], rtol=1e-4, atol=1e-7)


def test_the_surrogate_agrees_with_the_transcription(golden):
    arrays = [
        jnp.asarray(golden[k], jnp.float32) for k in ("logprob", "reference", "group_relative")
    ]
    found = losses.clipped_surrogate(*arrays, clip_low=0.2, clip_high=0.28)
    np.testing.assert_allclose(found.loss_BT, golden["clipped_surrogate"], rtol=2e-5, atol=1e-6)
