import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from episode_parts import episodes

from agentgym_jax.algorithms import ALGORITHMS, aggregation
from configs import common

pytestmark = pytest.mark.usefixtures("compiled_fast")

# One that waits for a critic would be no config of its own yet.
CONFIGS = {
    name: getattr(common, name)(**({"length": 64} if row.aggregation == "fixed_length" else {}))
    for name, row in ALGORITHMS.items()
    if not row.needs_critic
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_row_runs_with_its_defaults(name):
    row = ALGORITHMS[name]
    made = episodes([1.0, 0.0], group_size=2)
    advantage_BT = jax.jit(functools.partial(row.advantage, **row.defaults["advantage"]))(made)
    logprob_BT = made.reward_BT - 1
    sequence_BT = jnp.where(made.action_mask_BT, 1, 0)
    loss = jax.jit(functools.partial(row.loss, **row.defaults["loss"]))(
        logprob_BT, logprob_BT, advantage_BT, sequence_BT
    )
    # at the sampling policy the ratio is one; REINFORCE's loss has the log-probability instead
    factor = np.asarray(logprob_BT) if name in ("cispo", "reinforce") else 1.0
    np.testing.assert_allclose(loss.loss_BT, -advantage_BT * factor, rtol=1e-6)
    assert np.asarray(advantage_BT).any()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_config_of_an_algorithm_states_the_defaults_of_its_row(name):
    row, config = ALGORITHMS[name], CONFIGS[name]
    assert config["name"] == name
    assert config["advantage"] == row.defaults["advantage"]
    assert config["loss"] == row.defaults["loss"]
    assert config["aggregation"]["mode"] == row.aggregation
    for section in ("update", "run"):
        assert {k: config[k] for k in row.defaults[section]} == row.defaults[section]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_says_what_it_needs(name):
    row = ALGORITHMS[name]
    uses_reference = (
        row.defaults["update"]["kl_coef"] > 0 or row.defaults["run"]["kl_reward"]["kind"] != "none"
    )
    assert row.needs_reference == uses_reference
    assert row.takes_baseline == (row.defaults["run"]["baseline"]["kind"] != "none")
    assert row.aggregation in aggregation.MODES
