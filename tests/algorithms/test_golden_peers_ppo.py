"""Agreement of PPO's critic side with verl, trl and rlax (tests/golden/algorithms/make_peers.py)."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import gae, losses
from agentgym_jax.algorithms.episode_sums import Episodes

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "algorithms"
OPTIONS = {"monte_carlo": (1.0, 1.0), "discounted": (0.99, 0.95)}

pytestmark = pytest.mark.usefixtures("compiled_fastest")


def golden(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


GIVEN, VERL, TRL, RLAX = map(golden, ("peers_inputs", "verl", "trl", "rlax"))
MASK = np.asarray(GIVEN["mask"]) == 1
FULL = np.ones_like(MASK)


def estimated(function, rewards, mask, discount, gae_lambda, normalize=False):
    """Applies an estimator to episodes in which each run of action tokens is a turn."""
    turn = np.where(mask, np.cumsum(np.diff(mask, axis=1, prepend=False) & mask, axis=1) - 1, -1)
    made = Episodes(
        reward_BT=jnp.asarray(rewards, jnp.float32),
        action_mask_BT=jnp.asarray(mask),
        valid_B=jnp.ones(len(mask), bool),
        turn_BT=jnp.asarray(turn, jnp.int32),
        anchor_BT=jnp.asarray(turn, jnp.int32),
        value_BT=jnp.asarray(GIVEN["old_values"], jnp.float32),
        group_size=1,
    )
    options = dict(
        discount=discount, turn_discount=discount, gae_lambda=gae_lambda, normalize=normalize
    )
    return jax.jit(lambda episodes: function(episodes, **options))(made)


def assert_agrees(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "theirs", [VERL["gae"], TRL["ppo"]["gae"], RLAX["gae"]], ids=["verl", "trl", "rlax"]
)
def test_advantages_and_returns_agree_if_every_token_is_an_action(theirs, name):
    rewards = GIVEN["dense_rewards"]
    found = estimated(gae.token_gae, rewards, FULL, *OPTIONS[name])
    assert_agrees(found, theirs[name]["advantages"])
    found = estimated(gae.token_gae_returns, rewards, FULL, *OPTIONS[name])
    assert_agrees(found, theirs[name]["returns"])


@pytest.mark.parametrize("theirs", [VERL["gae"], TRL["ppo"]["gae"]], ids=["verl", "trl"])
def test_normalised_advantages_agree(theirs):
    found = estimated(
        gae.token_gae, GIVEN["dense_rewards"], FULL, *OPTIONS["discounted"], normalize=True
    )
    assert_agrees(found, theirs["discounted"]["whitened"])


def test_skipping_observations_agrees_with_verl():
    theirs = np.asarray(VERL["gae_observations"]["advantages"])
    found = estimated(gae.token_gae, GIVEN["rewards"], MASK, *OPTIONS["discounted"])
    assert_agrees(found, np.where(MASK, theirs, 0.0))


@pytest.mark.parametrize(
    "theirs", [VERL["value_loss"], TRL["ppo"]["value_loss"]], ids=["verl", "trl"]
)
def test_the_clipped_value_loss_and_its_gradient_agree(theirs):
    old_BT, return_BT, value_BT = (
        jnp.asarray(GIVEN[k], jnp.float32) for k in ("old_values", "returns", "values")
    )

    def mean(value_BT):
        loss_BT, is_clipped_BT = losses.clipped_value_loss(value_BT, old_BT, return_BT, clip=0.2)
        return jnp.sum(jnp.where(MASK, loss_BT, 0.0)) / MASK.sum(), is_clipped_BT

    (value, is_clipped_BT), gradient_BT = jax.value_and_grad(mean, has_aux=True)(value_BT)
    assert_agrees(value, theirs["loss"])
    assert_agrees(gradient_BT, theirs["gradient"])
    np.testing.assert_allclose(
        np.asarray(is_clipped_BT)[MASK].mean(), theirs["clip_fraction"], rtol=1e-6
    )
