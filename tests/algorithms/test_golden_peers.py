"""Agreement with verl, trl and rlax, whose results tests/golden/algorithms/make_peers.py recorded.

Values of verl and trl are float64; those of rlax and of this package are float32. A test named
`..._differs` shows an intended difference; other tests cover inputs with equal results.
"""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import advantages, aggregation, controllers, kl, losses
from agentgym_jax.algorithms.episode_sums import Episodes
from agentgym_jax.learner import importance
from agentgym_jax.learner.preference import LOSSES
from tests.algorithms.episode_parts import with_options
from tests.builders import policy_tokens

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "algorithms"
NARROW = dict(clip_low=3e-4, clip_high=4e-4)

pytestmark = pytest.mark.usefixtures("compiled_fastest")


def arrays(value):
    if isinstance(value, dict):
        return {name: arrays(of) for name, of in value.items()}
    return value if isinstance(value, str) else np.asarray(value)


def golden(name):
    return arrays(json.loads((FOLDER / f"{name}.json").read_text()))


GIVEN, VERL, TRL, RLAX = map(golden, ("peers_inputs", "verl", "trl", "rlax"))
MASK = GIVEN["mask"] == 1
BY_EPISODE = np.broadcast_to(GIVEN["episode_advantages"][:, None], MASK.shape)


def assert_agrees(found, expected, atol=2e-6):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=atol)


def made(rewards=GIVEN["rewards"], mask=MASK, valid=None, group_size=int(GIVEN["group_size"])):
    """Returns the episodes of peers_inputs.json; observations separate their turns."""
    turn = np.where(mask, np.cumsum(np.diff(mask, axis=1, prepend=False) & mask, axis=1) - 1, -1)
    return Episodes(
        reward_BT=jnp.asarray(rewards, jnp.float32),
        action_mask_BT=jnp.asarray(mask),
        valid_B=jnp.ones(len(mask), bool) if valid is None else jnp.asarray(valid),
        turn_BT=jnp.asarray(turn, jnp.int32),
        anchor_BT=jnp.asarray(turn, jnp.int32),
        value_BT=jnp.zeros(mask.shape, jnp.float32),
        group_size=group_size,
    )


@functools.cache
def compiled(estimator, names):
    return jax.jit(estimator, static_argnames=names)


def estimated(estimator, episodes, **options):
    return compiled(estimator, tuple(options))(episodes, **options)


def minimised(loss, advantage_BT, mode="token_mean", length=None, kl_coef=0.0, **options):
    """Returns the weighted sum of a token loss, its gradient and the share of clipped tokens."""
    weight_BT = aggregation.token_weights(
        jnp.asarray(MASK), jnp.ones(len(MASK), bool), mode=mode, length=length
    )
    old_BT, reference_BT, advantage_BT = (
        jnp.asarray(x, jnp.float32)
        for x in (GIVEN["old_logprobs"], GIVEN["reference_logprobs"], advantage_BT)
    )

    def total(logprob_BT):
        tokens = policy_tokens(logprob_BT, old_BT, advantage_BT, jnp.asarray(MASK, jnp.int32))
        found = loss(tokens, **options)
        divergence_BT = kl_coef * kl.k3(logprob_BT, reference_BT)
        return jnp.sum(weight_BT * (found.loss_BT + divergence_BT)), found.is_clipped_BT

    logprob_BT = jnp.asarray(GIVEN["logprobs"], jnp.float32)
    (value, is_clipped_BT), gradient_BT = jax.value_and_grad(total, has_aux=True)(logprob_BT)
    return {
        "loss": value,
        "gradient": gradient_BT,
        "clip_fraction": np.asarray(is_clipped_BT)[MASK].mean(),
    }


def assert_same(found, expected):
    for name, value in expected.items():
        assert_agrees(found[name], value)


@pytest.mark.parametrize(
    ("estimator", "options", "expected"),
    [
        (advantages.group_relative, dict(std_normalize=True), VERL["grpo"]),
        (advantages.group_relative, dict(std_normalize=False), VERL["dr_grpo"]),
        (advantages.leave_one_out, {}, VERL["rloo"]),
        (
            advantages.batch_normalized_returns,
            dict(discount=0.97, turn_discount=0.97),
            VERL["reinforce_pp"],
        ),
        (advantages.group_mean_batch_normalized, {}, VERL["reinforce_pp_baseline"]),
        # trl also divides by n - 1, but with a larger epsilon
        (
            advantages.group_relative,
            dict(std_normalize=True, eps=1e-4),
            MASK * TRL["grpo_advantage"][:, None],
        ),
        (
            advantages.group_relative,
            dict(std_normalize=False),
            MASK * TRL["dr_grpo_advantage"][:, None],
        ),
        (advantages.leave_one_out, {}, MASK * TRL["rloo_advantage"][:, None]),
    ],
    ids=[
        "verl_grpo",
        "verl_dr_grpo",
        "verl_rloo",
        "verl_reinforce_pp",
        "verl_reinforce_pp_baseline",
        "trl_grpo",
        "trl_dr_grpo",
        "trl_rloo",
    ],
)
def test_advantages_agree(estimator, options, expected):
    assert np.any(expected)
    assert_agrees(estimated(estimator, made(), **options), expected)


@pytest.mark.parametrize(
    ("estimator", "name", "options"),
    [
        (advantages.group_relative, "grpo_advantage_unscored", dict(std_normalize=True, eps=1e-4)),
        (advantages.leave_one_out, "rloo_advantage_unscored", {}),
    ],
)
def test_a_failed_episode_agrees_with_a_missing_score_in_trl(estimator, name, options):
    valid = np.arange(len(MASK)) != 5
    found = estimated(estimator, made(valid=valid), **options)
    assert_agrees(found, MASK * TRL[name][:, None])


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (with_options("group_relative"), "grpo_group_of_one"),
        (advantages.leave_one_out, "rloo_group_of_one"),
    ],
)
def test_a_group_of_one_differs(estimator, name):
    """Checks that a group of one episode gets advantage 0 here, while verl uses its return."""
    valid = np.arange(len(MASK)) != np.array([[8], [9], [10]])
    found = np.asarray(estimated(estimator, made(valid=valid.all(axis=0))))
    assert not found[-1].any()
    assert_agrees(VERL[name][-1], MASK[-1] * GIVEN["rewards"][-1].sum())
    # This package and verl agree on groups of several episodes.
    assert_agrees(found[:8], VERL[name][:8])


def test_a_reward_on_an_observation_differs():
    """Checks that an observation's reward is added to the action before it; verl masks it out."""
    rewards = VERL["reward_on_observation"]
    assert rewards.any() and not (rewards * MASK).any()
    assert not VERL["reinforce_pp_reward_on_observation"].any()
    estimator = with_options("batch_normalized_returns")
    late = estimated(estimator, made(rewards))
    early = estimated(estimator, made(np.roll(rewards, -1, axis=1)))
    assert np.asarray(late).any()
    np.testing.assert_array_equal(late, early)


def test_discounted_returns_agree_with_rlax():
    whole = made(GIVEN["dense_rewards"], np.ones_like(MASK))
    assert_agrees(
        estimated(advantages.monte_carlo, whole, discount=0.97, turn_discount=1.0), RLAX["returns"]
    )


CLIP = losses.clipped_surrogate
GSPO = losses.sequence_surrogate
TOKENS = GIVEN["token_advantages"]
# verl counts the tokens of the dual clip separately.
DUAL_CLIP = {name: VERL["dual_clip"][name] for name in ("loss", "gradient")}


@pytest.mark.parametrize(
    ("loss", "advantage", "options", "expected"),
    [
        (CLIP, TOKENS, dict(clip_low=0.2, clip_high=0.28), VERL["clip"]),
        (CLIP, TOKENS, dict(clip_low=0.2, clip_high=0.28, dual_clip=1.3), DUAL_CLIP),
        (
            CLIP,
            TOKENS,
            dict(clip_low=0.2, clip_high=0.2, mode="sequence_mean"),
            VERL["clip_sequence_mean"],
        ),
        (GSPO, BY_EPISODE, NARROW | dict(mode="sequence_mean"), VERL["gspo"]),
        (
            GSPO,
            TOKENS,
            dict(clip_low=0.1, clip_high=0.1, mode="sequence_mean"),
            VERL["gspo_by_token"],
        ),
        (losses.clipped_weight, TOKENS, dict(ratio_low=0.8, ratio_high=1.5), VERL["cispo"]),
        (
            CLIP,
            BY_EPISODE,
            dict(clip_low=0.2, clip_high=0.28, mode="sequence_mean"),
            TRL["grpo"],
        ),
        (
            CLIP,
            BY_EPISODE,
            dict(clip_low=0.2, clip_high=0.28, mode="sequence_mean", kl_coef=0.04),
            TRL["grpo_with_kl"],
        ),
        (
            CLIP,
            BY_EPISODE,
            dict(clip_low=0.2, clip_high=0.28, mode="fixed_length", length=16),
            TRL["dr_grpo"],
        ),
        (CLIP, BY_EPISODE, dict(clip_low=0.2, clip_high=0.28), TRL["dapo"]),
        (GSPO, BY_EPISODE, NARROW | dict(mode="sequence_mean"), TRL["gspo"]),
        (losses.clipped_weight, BY_EPISODE, dict(ratio_low=0.0, ratio_high=1.5), TRL["cispo"]),
        (CLIP, TOKENS, dict(clip_low=0.2, clip_high=0.2), TRL["ppo"]["clip"]),
    ],
    ids=[
        "verl_clip_higher",
        "verl_dual_clip",
        "verl_sequence_mean",
        "verl_gspo",
        "verl_gspo_with_an_advantage_per_token",
        "verl_cispo",
        "trl_grpo",
        "trl_grpo_with_kl",
        "trl_dr_grpo",
        "trl_dapo",
        "trl_gspo",
        "trl_cispo",
        "trl_ppo",
    ],
)
def test_losses_and_their_gradients_agree(loss, advantage, options, expected):
    assert expected["gradient"].any()
    assert_same(minimised(loss, advantage, **options), expected)


def test_ppo_clipping_agrees_with_rlax_if_all_tokens_are_trained():
    def total(logprob_BT):
        tokens = policy_tokens(
            logprob_BT,
            jnp.asarray(GIVEN["old_logprobs"], jnp.float32),
            jnp.asarray(TOKENS, jnp.float32),
            jnp.ones(MASK.shape, jnp.int32),
        )
        return jnp.mean(CLIP(tokens, clip_low=0.2, clip_high=0.2).loss_BT)

    value, gradient_BT = jax.value_and_grad(total)(jnp.asarray(GIVEN["logprobs"], jnp.float32))
    assert_same({"loss": value, "gradient": gradient_BT}, RLAX["clip"])


@pytest.mark.parametrize("mode", aggregation.MODES)
def test_aggregation_agrees_with_verl(mode):
    weight_BT = aggregation.token_weights(
        jnp.asarray(MASK),
        jnp.ones(len(MASK), bool),
        mode=mode,
        length=16 if mode == "fixed_length" else None,
    )
    assert_agrees(np.sum(weight_BT * GIVEN["returns"]), VERL["aggregated"][mode])


@pytest.mark.parametrize("kind", kl.ESTIMATORS)
def test_divergences_agree_with_verl(kind):
    pair = (jnp.asarray(GIVEN[k], jnp.float32) for k in ("logprobs", "reference_logprobs"))
    assert_agrees(kl.ESTIMATORS[kind](*pair), VERL["kl"][kind])


def test_a_large_divergence_differs():
    """Checks that k3 is not clipped here; verl clips k3 at 10 and thereby stops its gradient."""
    assert VERL["k3_far_away"] == [10.0]
    far = kl.k3(jnp.array([-9.0]), jnp.array([-1.0]))
    np.testing.assert_allclose(far, [np.exp(8) - 9], rtol=1e-6)


def test_the_adaptive_coefficient_agrees_with_verl():
    coef, found = 0.2, []
    for measured in (0.1, 0.11, 5.0, 0.0):
        coef = controllers.adaptive_coefficient(coef, measured, target=0.1, rate=0.1)
        found.append(coef)
    np.testing.assert_allclose(found, VERL["adaptive_coefficients"], rtol=1e-12)


@pytest.mark.parametrize(
    ("correction", "options"),
    [(importance.truncated, dict(cap=1.5)), (importance.sequence_mask, dict(low=0.8, high=1.25))],
)
def test_corrections_between_sampler_and_learner_agree_with_verl(correction, options):
    sequence = np.where(MASK, np.arange(len(MASK))[:, None], -1)
    found = correction(GIVEN["logprobs"], GIVEN["old_logprobs"], sequence, **options)
    expected = VERL[correction.__name__]
    assert expected[MASK].min() < expected[MASK].max()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "is_normalised", "expected"),
    [
        ("sigmoid", False, TRL["dpo"]),
        ("sigmoid", True, TRL["dpo_normalised"]),
        # trl's IPO always uses the mean over tokens; this package does so if pairs are normalised
        ("ipo", True, TRL["ipo"]),
    ],
)
def test_preference_losses_agree_with_trl(loss, is_normalised, expected):
    log_ratio = np.sum(MASK * (GIVEN["logprobs"] - GIVEN["reference_logprobs"]), axis=1)
    if is_normalised:
        log_ratio = log_ratio / MASK.sum(axis=1)
    margin = jnp.asarray(log_ratio[::2] - log_ratio[1::2], jnp.float32)
    assert_agrees(LOSSES[loss](margin, 0.3), expected)
