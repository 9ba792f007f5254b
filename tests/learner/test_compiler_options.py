"""Compiler options by chip: the programs that get them, and the chips that have none."""

import jax
import jax.numpy as jnp
import pytest

from agentgym_jax.learner import preference, update, value_update
from agentgym_jax.learner.train_state import abstract_state
from agentgym_jax.mesh import compiler_options
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.critic import Critic
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import make_learner

UNKNOWN = {"xla_option_of_no_compiler": "1"}
HERE = jax.devices()[0].device_kind


def trace_programs(layout):
    """Returns the traced programs that can have options, by name."""
    learner = make_learner(layout)
    policy, optimizer = learner.policy, learner.optimizer
    batch = pack_sequences(token_sequences(4))
    rows = jax.tree.map(lambda x: x[0], batch)
    pairs = preference.PreferenceBatch(batch, jnp.ones((len(batch.tokens), 2)))
    numerics = dict(logprob_chunk=16, layout=layout)
    score = update.make_score(policy, temperature=1.0, **numerics)
    critic = Critic(policy, is_shared=False)
    value_step = value_update.make_value_update(critic, optimizer, clip=0.2, layout=layout)
    of_pairs = preference.make_preference_update(
        policy, optimizer, preference.LOSSES["ipo"], beta=0.1, **numerics
    )
    state = abstract_state(policy, optimizer, layout)
    params = policy.abstract_params()
    return {
        "update": learner.update.trace(state, batch),
        "update of pairs": of_pairs.trace(state, pairs),
        "update of a critic": value_step.trace(abstract_state(critic, optimizer, layout), batch),
        "score": score.trace(params, rows),
        "score of a critic": value_update.make_value_score(critic, layout).trace(
            params, critic.abstract_params(), rows
        ),
    }


def test_options_of_the_chip_reach_the_compiler(monkeypatch):
    mesh = make_mesh(data=1, fsdp=2, tensor=1, devices=jax.devices()[:2])
    table = {HERE: {"update": UNKNOWN, "score": UNKNOWN}}
    monkeypatch.setattr(compiler_options, "TABLE", table)
    for name, traced in trace_programs(Layout(mesh, TRAIN_RULES)).items():
        with pytest.raises(jax.errors.JaxRuntimeError, match="xla_option_of_no_compiler"):
            traced.lower().compile()
            pytest.fail(f"{name} has no options")


def test_a_candidate_takes_the_place_of_the_table(monkeypatch):
    monkeypatch.setattr(compiler_options, "TABLE", {HERE: {"score": UNKNOWN}})
    assert compiler_options.compiler_options("score", None) == UNKNOWN
    assert compiler_options.compiler_options("update", None) is None
    with compiler_options.trying({}):
        assert compiler_options.compiler_options("score", None) is None
    assert compiler_options.compiler_options("score", None) == UNKNOWN


def test_only_tpus_have_options():
    assert all(kind.startswith("TPU ") for kind in compiler_options.TABLE)
    assert compiler_options.compiler_options("update", None) is None
