"""A policy small enough to be compiled in a second, and batches for it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax import batch as batching
from agentgym_jax.algorithms import losses
from agentgym_jax.learner import optimizer, train_state, update
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.policy import Policy

CONFIG = DecoderConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
)
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
    """All parts of an update, compiled once a test module."""

    policy: Policy
    optimizer: Any
    state: Callable[[], train_state.TrainState]
    update: update.Update


def make_learner(layout=None, token_loss=SURROGATE, **changes):
    """`changes` go to whichever of OPTIMIZER and UPDATE has the name."""
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
    # Copies: an update donates its state.
    return Learner(policy, built, lambda: jax.tree.map(jnp.array, first), step)


@functools.cache
def first_params():
    """The same random weights for every learner."""
    return jax.tree.map(np.asarray, jax.jit(Policy(CONFIG).init)(jax.random.key(0)))


def sequences(count=8, seed=0, shortest=6, longest=16):
    """Random episodes: prompt, action, observation, action; weights add up to about one."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        n = int(rng.integers(shortest, longest + 1))
        mask = np.ones(n, bool)
        mask[: n // 4 + 1] = False
        mask[n // 2 : n // 2 + 2] = False
        made.append(
            {
                "tokens": rng.integers(0, CONFIG.vocab_size, n),
                "action_mask": mask,
                "weights": mask * rng.uniform(0.5, 1.5) / (8 * count),
                "advantages": mask * rng.normal(),
                "old_logprobs": mask * rng.normal(-4.16, 0.2, n),
                "reference_logprobs": mask * rng.normal(-4.16, 0.2, n),
            }
        )
    return made


def packed(made, *, micro_rows=2, row_length=32):
    """[8 / micro_rows, micro_rows, 32]: always 8 rows, so that few programs are compiled."""
    whole = batching.pack(made, row_length=row_length, rows_multiple=8)
    assert whole.tokens.shape[0] == 8, "more sequences than this helper was made for"
    return batching.micro_batches(whole, micro_rows)
