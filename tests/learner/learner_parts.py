"""A policy that is small enough to compile in a second, its updates, and batches of episodes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from agentgym_jax.algorithms import ALGORITHMS, losses
from agentgym_jax.learner import optimizer, train_state, update
from agentgym_jax.learner.experience import make_experience, pack_experience
from agentgym_jax.models.policy import Policy
from configs import common
from tests.builders import decoder_config, pack_sequences, token_sequences

CONFIG = decoder_config(vocab_size=64, hidden_size=16, intermediate_size=32)
OPTIMIZER = {
    "name": "adamw",
    "learning_rate": 1e-2,
    "schedule": "constant",
    "warmup_steps": 0,
    "total_steps": 10,
    "final_fraction": 1.0,
    "b1": 0.9,
    "b2": 0.95,
    "eps": 1e-8,
    "weight_decay": 0.01,
    "max_grad_norm": None,
    "moments": "float32",
}
UPDATE = {
    "entropy_coef": 0.01,
    "kl_coef": 0.05,
    "kl_kind": "k3",
    "temperature": 0.7,
    "logprob_chunk": 16,
}
SURROGATE = functools.partial(losses.clipped_surrogate, clip_low=0.2, clip_high=0.2)


@dataclasses.dataclass(frozen=True)
class Learner:
    """Policy, optimiser, initial state and update; the update is compiled once."""

    policy: Policy
    optimizer: Any
    state: Callable[[], train_state.TrainState]
    update: update.Update


def make_learner(layout=None, token_loss=SURROGATE, **changes):
    """Returns a learner; each of `changes` replaces the option of that name in OPTIMIZER or UPDATE."""
    policy = Policy(CONFIG, layout=layout)
    built = optimizer.make_optimizer(
        **{k: changes.get(k, v) for k, v in OPTIMIZER.items()},
    )
    step = update.make_update(
        policy,
        built,
        token_loss,
        **{k: changes.get(k, v) for k, v in UPDATE.items()},
        layout=layout,
    )
    first = train_state.create(policy, built, first_params(), layout)
    # Every state is a copy, because an update donates its state's arrays.
    return Learner(policy, built, lambda: jax.tree.map(jnp.array, first), step)


def on_host(tree):
    """Returns copies of the arrays, because the next update donates those of the state."""
    return jax.tree.map(np.array, tree)


def steps_from(learner, state, seeds, layout=None):
    """Returns the state after one step for each seed's batch."""
    for seed in seeds:
        batch = update.put_batch(pack_sequences(token_sequences(seed=seed), micro_rows=8), layout)
        state, _ = learner.update(state, batch)
    return state


def gradient(learner, batch):
    """Returns the gradient of one step from the first state, and the step's metrics."""
    state, metrics = learner.update(learner.state(), update.put_batch(batch))
    return first_gradient(state), on_host(metrics)


def first_gradient(state):
    """Returns the gradient of a first step, which is ten times Adam's first moment after it."""
    return jax.tree.map(lambda m: 10.0 * np.asarray(m), optax.tree.get(state.opt_state, "mu"))


def experience_of(episodes, name="grpo", group_size=None, **changes):
    """Returns the experience of episodes; `changes` replace options of `make_experience`."""
    options = dict(
        algorithm=ALGORITHMS[name],
        group_size=group_size or len(episodes),
        max_tokens=16,
        reward="success",
        failed_turn_penalty=0.0,
        truncation="fail",
        advantage_options=advantage_options(name),
    )
    return make_experience(episodes, **(options | changes))


def advantage_options(name):
    """Returns the options of an algorithm's advantages."""
    return common.make_algorithm(name, length=16)["advantage"]


def pack_all(experience, **changes):
    """Returns the batch of all episodes; `changes` replace options of `pack_experience`."""
    options = dict(
        aggregation_options=dict(mode="token_mean"),
        row_length=16,
        num_row_lengths=1,
        rows_multiple=1,
        keep_zero_advantage=True,
    )
    everything = np.arange(len(experience.trajectories))
    return pack_experience(experience, everything, **(options | changes))


def assert_close(found, expected, tolerance=2e-5):
    """Compares trees; the tolerance is relative to the largest entry of each array.

    The default is for float32 sums in another order.
    """

    def compare(a, b):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())

    jax.tree.map(compare, found, expected)


@functools.cache
def first_params():
    """Returns initial weights, which are the same for every learner."""
    return jax.tree.map(np.asarray, jax.jit(Policy(CONFIG).init)(jax.random.key(0)))
