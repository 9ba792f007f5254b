import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS, aggregation
from configs import common
from tests.builders import one_turn_episodes, policy_tokens

pytestmark = pytest.mark.usefixtures("compiled_fastest")

CONFIGS = {name: common.make_algorithm(name, length=64) for name in ALGORITHMS}


@pytest.mark.parametrize("name", [n for n, row in ALGORITHMS.items() if not row.needs_critic])
def test_every_algorithm_runs_with_the_options_of_its_config(name):
    row, config = ALGORITHMS[name], CONFIGS[name]
    made = one_turn_episodes([1.0, 0.0], group_size=2)
    advantage_BT = jax.jit(functools.partial(row.advantage, **config["advantage"]))(made)
    logprob_BT = made.reward_BT - 1
    sequence_BT = jnp.where(made.action_mask_BT, 1, 0)
    tokens = policy_tokens(logprob_BT, logprob_BT, advantage_BT, sequence_BT)
    loss = jax.jit(functools.partial(row.loss, **config["loss"]))(tokens)
    # With ratio 1 the factor of the advantage is 1. For CISPO and REINFORCE it is the
    # log-probability, and for SAPO 2 / tau.
    factor = np.asarray(logprob_BT) if name in ("cispo", "reinforce") else 1.0
    if name == "sapo":
        factor = 2.0 / np.where(advantage_BT > 0, 1.0, 1.05)
    np.testing.assert_allclose(loss.loss_BT, -advantage_BT * factor, rtol=1e-6)
    assert np.asarray(advantage_BT).any()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_config_of_an_algorithm_agrees_with_the_table(name):
    row, config = ALGORITHMS[name], CONFIGS[name]
    assert set(common.ALGORITHMS) == set(ALGORITHMS)
    assert config["name"] == name
    assert config["aggregation"]["mode"] in aggregation.MODES
    assert row.needs_critic == ("critic" in config)
    assert row.takes_baseline == ("baseline" in config)
    assert row.needs_marks == ("marks" in config)


# Options of the advantage and of the loss, as published for each algorithm.
PUBLISHED = {
    "ppo": (
        {"discount": 1.0, "turn_discount": 1.0, "gae_lambda": 1.0, "normalize": True},
        {"clip_low": 0.2, "clip_high": 0.2},
    ),
    "ppo_turn": (
        {"turn_discount": 1.0, "gae_lambda": 0.95, "normalize": True},
        {"clip_low": 0.2, "clip_high": 0.2},
    ),
    "grpo": ({"std_normalize": True}, {"clip_low": 0.2, "clip_high": 0.2}),
    "dr_grpo": ({"std_normalize": False}, {"clip_low": 0.2, "clip_high": 0.2}),
    "rloo": ({}, {"clip_low": 0.2, "clip_high": 0.2}),
    "reinforce": ({"discount": 1.0, "turn_discount": 1.0}, {}),
    "reinforce_pp": (
        {"discount": 1.0, "turn_discount": 1.0},
        {"clip_low": 0.2, "clip_high": 0.2},
    ),
    "reinforce_pp_baseline": ({}, {"clip_low": 0.2, "clip_high": 0.2}),
    "dapo": ({"std_normalize": True}, {"clip_low": 0.2, "clip_high": 0.28}),
    "gspo": ({"std_normalize": True}, {"clip_low": 3e-4, "clip_high": 4e-4}),
    "gspo_token": (
        {"step_weight": 1.0, "turn_discount": 0.95, "std_normalize": True},
        {"clip_low": 3e-4, "clip_high": 4e-4},
    ),
    "cispo": ({"std_normalize": True}, {"ratio_low": 0.0, "ratio_high": 5.0}),
    "gigpo": (
        {"step_weight": 1.0, "turn_discount": 0.95, "std_normalize": True},
        {"clip_low": 0.2, "clip_high": 0.2},
    ),
    "clip_cov": ({"std_normalize": True}, {"ratio_high": 2.0}),
    "kl_cov": ({"std_normalize": True}, {"penalty": 1.0}),
    "sapo": ({"std_normalize": True}, {"tau_positive": 1.0, "tau_negative": 1.05}),
    "distill": ({}, {"clip_low": 0.2, "clip_high": 0.2}),
}
# Aggregation of the published algorithms; the others have `token_mean`.
AGGREGATIONS = dict.fromkeys(
    ("grpo", "gspo", "gspo_token", "sapo"), "sequence_mean"
) | dict.fromkeys(("dr_grpo", "rloo", "reinforce"), "fixed_length")
# Other config keys in which an algorithm differs from the defaults.
OTHERS = {
    "reinforce": {"baseline": {"kind": "moving_average", "decay": 0.9}},
    "reinforce_pp": {"kl_reward": {"kind": "fixed", "coef": 1e-3}},
    "reinforce_pp_baseline": {"kl_kind": "k2"},
    "dapo": {"zero_variance": "resample"},
    "clip_cov": {"marks": {"kind": "in_range", "share": 2e-4, "low": 1.0, "high": 5.0}},
    "kl_cov": {"marks": {"kind": "largest", "share": 2e-3}},
    "distill": {"kl_reward": {"kind": "fixed", "coef": 1.0}},
    "gspo": {"old_logprobs_from": "learner"},
    "gspo_token": {"old_logprobs_from": "learner"},
}
CHOICES = ("baseline", "kl_reward", "kl_kind", "correction", "marks")
# Pairs of values for (entropy_coef, kl_coef).
RELEASED, FREE = (1e-3, 1e-3), (0.0, 0.0)
COEFFICIENTS = dict.fromkeys(("ppo", "ppo_turn", "grpo", "rloo"), RELEASED) | {
    "reinforce_pp_baseline": (0.0, 1e-3),
    "gigpo": (1e-3, 1e-2),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_options_of_an_algorithm_are_the_published_ones(name):
    config, (advantage, loss) = CONFIGS[name], PUBLISHED[name]
    assert config["advantage"] == advantage
    assert config["loss"] == loss
    assert config["aggregation"]["mode"] == AGGREGATIONS.get(name, "token_mean")
    assert (config["entropy_coef"], config["kl_coef"]) == COEFFICIENTS.get(name, FREE)
    plain = {"zero_variance": "keep", "old_logprobs_from": "sampler"}
    found = {key: value for key, value in config.items() if key in (*plain, *CHOICES)}
    assert found == plain | OTHERS.get(name, {})
