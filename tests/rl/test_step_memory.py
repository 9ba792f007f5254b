"""Arrays that a training step of RL keeps: weights of the reference, and the sampler's arrays."""

import contextlib
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.config.model import Model
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.learner import update
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.rl import loop
from tests.builders import decoder_config, pack_sequences, token_sequences

CONFIG = decoder_config(vocab_size=64, hidden_size=16, intermediate_size=32, qkv_bias=True)


pytestmark = pytest.mark.usefixtures("compiled_fastest")


class Released(Exception):
    """Raised by a sampler that is released."""


def starting(policy, *, needs_reference):
    """Returns the run and the parts of a job that starts from random weights."""
    parts = types.SimpleNamespace(
        settings=types.SimpleNamespace(
            needs_reference=needs_reference,
            sft=None,
            has_warm_start=False,
            controllers=types.SimpleNamespace(initial_state=lambda: None),
        ),
        model=types.SimpleNamespace(
            policy=policy,
            initial_params=lambda: policy.init(jax.random.key(0)),
            pin=lambda folder: None,
        ),
        teacher=None,
        abstract_state=lambda: None,
        create_state=lambda params: jax.tree.map(jnp.copy, params),
    )
    return types.SimpleNamespace(restore=lambda abstract: None, seed=0, folder=None), parts


def test_the_reference_has_the_scores_of_float32_weights_in_half_the_memory():
    policy = Policy(CONFIG, dtype="bfloat16")
    now, reference = loop.restore_or_create(*starting(policy, needs_reference=True))
    sizes = [sum(x.nbytes for x in jax.tree.leaves(tree)) for tree in (reference, now.state)]
    assert sizes[0] < 0.55 * sizes[1]
    score = update.make_score(policy, temperature=0.7, logprob_chunk=16)
    one = jax.tree.map(lambda x: x[0], pack_sequences(token_sequences()))
    batch = update.put_batch(one)
    jax.tree.map(np.testing.assert_array_equal, score(reference, batch), score(now.state, batch))


def test_a_float32_reference_is_not_copied():
    policy = Policy(CONFIG)
    params = policy.init(jax.random.key(0))
    cast = policy.cast_params(params)
    assert all(a is b for a, b in zip(*map(jax.tree.leaves, (cast, params)), strict=True))


def test_without_a_divergence_no_reference_is_kept():
    _, reference = loop.restore_or_create(*starting(Policy(CONFIG), needs_reference=False))
    assert reference is None


@pytest.mark.parametrize("needs_reference", [True, False])
def test_a_changed_source_is_refused_if_the_reference_is_read_again(tmp_path, needs_reference):
    weights = tmp_path / "model.safetensors"
    (tmp_path / "model").mkdir()
    run, parts = starting(Policy(CONFIG), needs_reference=needs_reference)
    run.folder = types.SimpleNamespace(model=tmp_path / "model")
    parts.model.source = ModelSource(str(tmp_path), "hf_dir", tmp_path, CONFIG)
    parts.model.adapters = None
    parts.model.pin = functools.partial(Model.pin, parts.model)
    weights.write_bytes(b"first")
    loop.restore_or_create(run, parts)
    loop.restore_or_create(run, parts)
    weights.write_bytes(b"other")
    refused = pytest.raises(ConfigError, match="config.model.source: .*put the old weights back")
    with refused if needs_reference else contextlib.nullcontext():
        loop.restore_or_create(run, parts)


@pytest.mark.parametrize(("max_off_policy_steps", "error"), [(0, Released), (1, AttributeError)])
def test_the_sampler_is_released_unless_a_rollout_runs_during_the_update(
    max_off_policy_steps, error
):
    """Checks the first action after the rollout; later ones fail, because they lack their inputs."""

    def release():
        raise Released

    rollout = types.SimpleNamespace(groups=types.SimpleNamespace(trajectories=()))
    rollouts = types.SimpleNamespace(take=lambda controllers, step: rollout)
    parts = types.SimpleNamespace(
        settings=types.SimpleNamespace(
            rollout=types.SimpleNamespace(max_off_policy_steps=max_off_policy_steps)
        ),
        agent=types.SimpleNamespace(sampler=types.SimpleNamespace(release=release)),
    )
    now = types.SimpleNamespace(controllers=object(), step=0)
    with pytest.raises(error):
        loop.train_step(None, parts, rollouts, now, None)
