import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.policy import Policy
from tests.learner.learner_parts import CONFIG, OPTIMIZER, first_params


@pytest.fixture(scope="module", params=["adamw", "muon"])
def optimizer(request):
    return make_optimizer(**{**OPTIMIZER, "name": request.param})


@pytest.fixture(scope="module")
def adamw():
    return make_optimizer(**OPTIMIZER)


@pytest.fixture(scope="module")
def layout():
    return Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)


def test_moments_have_the_sharding_of_their_parameter(optimizer, layout):
    state = train_state.create(Policy(CONFIG), optimizer, first_params(), layout)
    kernel = state.params["layers"]["mlp"]["up_kernel"]
    assert kernel.sharding.spec == jax.P(None, "fsdp", "tensor")
    flat, _ = jax.tree_util.tree_flatten_with_path(state.params)
    by_path = {path: x for path, x in flat}
    moments, _ = jax.tree_util.tree_flatten_with_path(state.opt_state)
    found = 0
    for path, x in moments:
        owners = [by_path[path[i:]] for i in range(len(path)) if path[i:] in by_path]
        if owners:
            found += 1
            assert x.sharding == owners[0].sharding
        else:
            assert x.sharding.is_fully_replicated
    assert found >= len(flat)


def test_sharded_random_parameters_equal_those_of_one_device(adamw, layout):
    policy = Policy(CONFIG)
    params = policy.init_sharded(jax.random.key(0), layout)
    state = train_state.create(policy, adamw, params, layout)
    # sharded float32 random numbers are scaled in another order, so the last bit may differ
    chex.assert_trees_all_close(state.params, first_params(), rtol=3e-7, atol=0)
    assert state.params["layers"]["mlp"]["up_kernel"].sharding.spec == jax.P(None, "fsdp", "tensor")
    assert state.step == 0


@pytest.mark.parametrize("is_sharded", [False, True])
def test_create_copies_the_given_parameters(adamw, layout, is_sharded):
    policy = Policy(CONFIG)
    params = jax.tree.map(jnp.asarray, first_params())
    expected = jax.tree.map(np.array, params)
    state = train_state.create(policy, adamw, params, layout if is_sharded else None)
    chex.assert_trees_all_equal(state.params, expected)
    jax.jit(lambda s: jax.tree.map(jnp.negative, s), donate_argnums=0)(state)
    chex.assert_trees_all_equal(params, expected)  # not deleted, because the state was a copy


@pytest.mark.parametrize("is_sharded", [False, True])
def test_the_abstract_state_matches_the_state(optimizer, layout, is_sharded):
    policy, where = Policy(CONFIG), layout if is_sharded else None
    state = train_state.create(policy, optimizer, first_params(), where)
    abstract = train_state.abstract_state(policy, optimizer, where)
    assert jax.tree.structure(abstract) == jax.tree.structure(state)
    for a, x in zip(jax.tree.leaves(abstract), jax.tree.leaves(state), strict=True):
        assert (a.shape, a.dtype) == (x.shape, x.dtype)
        assert a.sharding.is_equivalent_to(x.sharding, x.ndim)


def test_the_error_for_parameters_of_another_model_names_them(adamw):
    params = {**first_params(), "final_norm": {"scale": np.ones(17, np.float32)}}
    with pytest.raises(ValueError, match=r"final_norm/scale: found .*17.*expected .*16"):
        train_state.create(Policy(CONFIG), adamw, params)
