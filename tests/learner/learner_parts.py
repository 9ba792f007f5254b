"""A policy that is small enough to compile in a second, and batches for it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.algorithms import losses
from agentgym_jax.learner import optimizer, train_state, update
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config

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


@functools.cache
def first_params():
    """Returns initial weights, which are the same for every learner."""
    return jax.tree.map(np.asarray, jax.jit(Policy(CONFIG).init)(jax.random.key(0)))
