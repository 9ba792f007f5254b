import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from agentgym_jax.mesh.sharding import (
    DECODE_RULES,
    TRAIN_RULES,
    Layout,
    constrain,
    make_mesh,
    reshard,
)
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.sampling import decode
from tests.builders import decoder_config

pytestmark = pytest.mark.usefixtures("compiled_fastest")

CONFIG = decoder_config(vocab_size=104)
# The 2 key/value heads are not split if tensor=4; the 4 query heads are not split if tensor=8.
ONE_DEVICE = dict(data=1, fsdp=1, tensor=1)
MESHES = [dict(data=8), dict(fsdp=2, tensor=4), dict(data=2, fsdp=2, tensor=2), dict(tensor=8)]
TOLERANCE = dict(rtol=2e-4, atol=2e-5)  # tolerance for float32 sums that are split over devices


def _batch(rows=8, length=16):
    tokens = jax.random.randint(jax.random.key(1), (rows, length), 0, 104)
    segments = jnp.where(jnp.arange(length) < 10, 1, 2)[None].repeat(rows, 0)
    positions = jnp.where(jnp.arange(length) < 10, jnp.arange(length), jnp.arange(length) - 10)
    return tokens, positions[None].repeat(rows, 0), segments


def _loss(policy):
    def loss(params, tokens, positions, segments):
        hidden = policy.hidden(params, tokens, positions, segments)
        scores = token_logprobs(policy, params, hidden, tokens, chunk_size=32)
        return -jnp.mean(scores.logprob_BT) + 0.1 * jnp.mean(scores.entropy_BT), hidden

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def _spread_params(policy, layout=None):
    params = policy.init_sharded(jax.random.key(0), layout)
    return jax.tree.map(lambda x: x * 5.0, params)


@functools.cache
def _trained_by_one(tie):
    policy = Policy(dataclasses.replace(CONFIG, tie_embeddings=tie))
    return jax.device_get(_loss(policy)(_spread_params(policy), *_batch()))


# One mesh is tested with a separate output head, the other meshes with tied weights.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "tie"), [(sizes, sizes != MESHES[2]) for sizes in MESHES], ids=str
)
def test_eight_devices_train_like_one(sizes, tie):
    config = dataclasses.replace(CONFIG, tie_embeddings=tie)
    layout = Layout(make_mesh(**ONE_DEVICE | sizes), TRAIN_RULES)
    many = Policy(config, layout=layout)
    (loss, hidden), gradients = _trained_by_one(tie)
    (loss8, hidden8), gradients8 = _loss(many)(_spread_params(many, layout), *_batch())
    np.testing.assert_allclose(loss8, loss, rtol=1e-5)
    np.testing.assert_allclose(hidden8, hidden, **TOLERANCE)
    for a, b in zip(jax.tree.leaves(gradients8), jax.tree.leaves(gradients), strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)
    assert len(hidden8.sharding.device_set) == 8


def _decode(layout):
    policy = Policy(CONFIG, layout=layout)
    tokens, _, _ = _batch()
    positions = jnp.tile(jnp.arange(16), (8, 1))
    params = _spread_params(policy, layout)
    cache = KVCache.create(CONFIG, 8, 32, "float32", layout)
    step = jax.jit(policy.hidden_cached, donate_argnums=3)
    first, cache = step(params, tokens[:, :9], positions[:, :9], cache)
    last, cache = step(params, tokens[:, 9:], positions[:, 9:], cache)
    return jax.device_get(policy.logits(params, jnp.concatenate([first, last], axis=1)))


@functools.cache
def _decoded_by_one():
    return _decode(None)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_eight_devices_decode_like_one(sizes):
    many = _decode(Layout(make_mesh(**ONE_DEVICE | sizes), DECODE_RULES))
    np.testing.assert_allclose(many, _decoded_by_one(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("sizes", MESHES[1:], ids=str)
def test_a_cache_that_goes_from_program_to_program_compiles_each_once(sizes):
    layout = Layout(make_mesh(**ONE_DEVICE | sizes), DECODE_RULES)
    policy = Policy(CONFIG, layout=layout)
    cache = KVCache.create(CONFIG, 8, 32, "float32", layout)
    params = _spread_params(policy, layout)
    decode.prefill.clear_cache()
    for start in (0, 4, 8):
        numbers = np.arange(8, dtype=np.int32)
        tokens = np.ones((8, 4), np.int32)
        starts = np.full(8, start, np.int32)
        cache = decode.prefill(policy, params, cache, tokens, numbers, starts, numbers * 0 + 4)
    assert decode.prefill._cache_size() == 1


def test_a_policy_may_be_used_inside_set_mesh():
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    policy = Policy(CONFIG, layout=layout)
    with jax.set_mesh(layout.mesh):
        params = policy.init_sharded(jax.random.key(0), layout)
        inside = jax.jit(policy.hidden)(params, *_batch())
    np.testing.assert_array_equal(inside, jax.jit(policy.hidden)(params, *_batch()))


def test_sharding_constraints_take_effect_on_cpu():
    layout = Layout(make_mesh(data=4, fsdp=1, tensor=2), TRAIN_RULES)
    out = jax.jit(lambda x: constrain(layout, x * 2, ("batch", "act_mlp")))(jnp.ones((8, 6)))
    assert {s.data.shape for s in out.addressable_shards} == {(2, 3)}


def test_sharded_init_gives_the_weights_of_one_device():
    layout = Layout(make_mesh(data=1, fsdp=4, tensor=2), TRAIN_RULES)
    policy = Policy(CONFIG)
    one = policy.init_sharded(jax.random.key(0), None)
    many = policy.init_sharded(jax.random.key(0), layout)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(a, b)
    gate = many["layers"]["mlp"]["gate_kernel"]
    assert {s.data.shape for s in gate.addressable_shards} == {(2, 8, 24)}


def test_reshard_changes_placement_and_type_with_one_program():
    mesh = make_mesh(data=1, fsdp=4, tensor=2)
    policy = Policy(CONFIG)
    params = policy.init_sharded(jax.random.key(0), Layout(mesh, TRAIN_RULES))
    target = policy.param_shardings(Layout(mesh, DECODE_RULES))
    with jax.transfer_guard("disallow"):
        moved = reshard(params, target, "bfloat16")
        with jax.log_compiles(), _no_compilation():
            moved = reshard(params, target, "bfloat16")
    for old, new, sharding in zip(*map(jax.tree.leaves, (params, moved, target)), strict=True):
        assert new.dtype == jnp.bfloat16 and new.sharding == sharding
        np.testing.assert_array_equal(old.astype(jnp.bfloat16), new)


def test_resharded_weights_outlive_a_donating_update_of_the_original():
    params = {"w": jnp.arange(4096.0)}
    moved = reshard(params, None, "float32")
    jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)(params)
    assert params["w"].is_deleted()
    np.testing.assert_array_equal(moved["w"], np.arange(4096.0))


class _no_compilation:
    """A context manager that raises an error if JAX compiles a program inside the block."""

    def __enter__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event, duration, **kwargs):
        self.count += event == "/jax/core/compile/backend_compile_duration"

    def __exit__(self, *error):
        jax.monitoring.unregister_event_duration_listener(self._listen)
        assert self.count == 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (dict(data=3), "does not fit 8 cpu devices"),
        (dict(data=-1, tensor=3), "does not fit 8 cpu devices"),
        (dict(data=-1, tensor=-1), "at most one may be -1"),
        (dict(data=0), "must be positive"),
    ],
)
def test_the_error_for_an_invalid_mesh_names_sizes_and_devices(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_mesh(**ONE_DEVICE | sizes)


def test_one_mesh_size_can_be_inferred_from_the_number_of_devices():
    assert make_mesh(data=-1, fsdp=1, tensor=2).shape == {"data": 4, "fsdp": 1, "tensor": 2}
    assert make_mesh(data=1, fsdp=1, tensor=1, devices=jax.devices()[:1]).size == 1


def test_two_logical_axes_on_one_mesh_axis_are_refused():
    layout = Layout(make_mesh(data=8, fsdp=1, tensor=1), {**TRAIN_RULES, "act_embed": "data"})
    with pytest.raises(ValueError, match="both 'batch' and 'act_embed' on mesh axis 'data'"):
        layout.sharding(("batch", "length", "act_embed"))


def test_errors_name_unknown_logical_and_mesh_axes():
    with pytest.raises(ValueError, match="no rule for logical axis 'widht'"):
        Layout(make_mesh(data=8, fsdp=1, tensor=1), TRAIN_RULES).sharding(("widht",))
    with pytest.raises(ValueError, match=r"not \['expert'\]"):
        Layout(make_mesh(data=8, fsdp=1, tensor=1), {"mlp": "expert"})


def test_an_axis_that_is_not_divisible_is_not_sharded():
    layout = Layout(make_mesh(data=2, fsdp=1, tensor=4), TRAIN_RULES)
    assert layout.shards("kv_heads") == 4
    assert layout.sharding(("embed", "kv_heads"), (32, 2)).spec == PartitionSpec()
    assert layout.sharding(("embed", "kv_heads"), (32, 8)).spec == PartitionSpec(None, "tensor")
