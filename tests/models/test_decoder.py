import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.config import RopeScaling
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config, decoder_families
from tests.models.decoder_parts import (
    assert_packed_rows_equal_separate_rows,
    equations,
    fill,
    random_params,
    random_tokens,
)

SMALL = decoder_config(num_layers=3)
FAMILIES = decoder_families(
    SMALL,
    llama=dict(rope_theta=1e4, rope_scaling=RopeScaling("llama3", 8.0, original_max_position=16)),
)
ROWS, LENGTH, SLOTS = 4, 24, 160
# Tolerance for float32 sums in another order; hidden states are of order 1.
TOLERANCE = dict(rtol=2e-5, atol=2e-5)

_hidden = jax.jit(lambda policy, *inputs: policy.hidden(*inputs), static_argnums=0)
_hidden_cached = jax.jit(lambda policy, *inputs: policy.hidden_cached(*inputs), static_argnums=0)
_logits = jax.jit(lambda policy, *inputs: policy.logits(*inputs), static_argnums=0)


@pytest.fixture(params=FAMILIES)
def policy(request):
    return Policy(FAMILIES[request.param])


def _tokens(rows=ROWS, seed=2):
    return random_tokens(rows, LENGTH, seed)


def _fill(policy, params, tokens, positions, pieces, slots=SLOTS):
    """Returns the hidden states of tokens that are prefilled in pieces, and the filled cache."""
    cache = KVCache.create(policy.config, tokens.shape[0], slots, policy.dtype)
    hidden_cached = functools.partial(_hidden_cached, policy, params)
    return fill(hidden_cached, tokens, positions, pieces, cache)


def test_the_parameter_tree_has_the_documented_names_and_shapes():
    untied = dataclasses.replace(SMALL, qk_norm=True, tie_embeddings=False)
    abstract = Policy(untied).abstract_params()
    shapes = jax.tree.map(lambda x: x.shape, abstract)
    L, D, N, K, H, F, V = 3, 32, 4, 2, 8, 48, 101
    assert shapes == {
        "embed": {"embedding": (V, D)},
        "layers": {
            "attention_norm": {"scale": (L, D)},
            "attention": {
                "q_kernel": (L, D, N, H),
                "k_kernel": (L, D, K, H),
                "v_kernel": (L, D, K, H),
                "o_kernel": (L, N, H, D),
                "q_bias": (L, N, H),
                "k_bias": (L, K, H),
                "v_bias": (L, K, H),
                "q_norm": (L, H),
                "k_norm": (L, H),
            },
            "mlp_norm": {"scale": (L, D)},
            "mlp": {
                "gate_kernel": (L, D, F),
                "up_kernel": (L, D, F),
                "down_kernel": (L, F, D),
            },
        },
        "final_norm": {"scale": (D,)},
        "unembed": {"kernel": (D, V)},
    }
    axes = Policy(untied).logical_axes()
    assert axes["layers"]["attention"]["o_kernel"] == ("layers", "heads", "head", "embed")
    ranks = jax.tree.map(
        lambda a, x: len(a) == x.ndim, axes, abstract, is_leaf=lambda a: isinstance(a, tuple)
    )
    assert all(jax.tree.leaves(ranks))


@pytest.mark.slow
def test_initial_weights_have_the_stated_scale(policy):
    params = jax.jit(policy.init)(jax.random.key(0))
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    layers = params["layers"]
    assert np.std(params["embed"]["embedding"]) == pytest.approx(0.02, rel=0.1)
    assert np.std(layers["attention"]["q_kernel"]) == pytest.approx(0.02, rel=0.1)
    assert np.std(layers["mlp"]["down_kernel"]) == pytest.approx(0.02 / 6**0.5, rel=0.1)
    assert np.all(layers["mlp_norm"]["scale"] == 1.0)


def test_cached_decoding_equals_teacher_forcing(policy):
    params = random_params(policy)
    tokens, positions = _tokens()
    forced = _hidden(policy, params, tokens, positions, jnp.ones_like(tokens))
    decoded, _ = _fill(policy, params, tokens, positions, [1] * LENGTH)
    np.testing.assert_allclose(decoded, forced, **TOLERANCE)
    np.testing.assert_allclose(
        _logits(policy, params, decoded),
        _logits(policy, params, forced),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.slow
def test_a_prefill_in_pieces_equals_one_prefill(policy):
    params = random_params(policy)
    tokens, positions = _tokens()
    whole, _ = _fill(policy, params, tokens, positions, [LENGTH])
    pieces, _ = _fill(policy, params, tokens, positions, [7, 1, 10, 6])
    np.testing.assert_allclose(pieces, whole, **TOLERANCE)


def test_packed_rows_equal_separate_rows(policy):
    params = random_params(policy)
    tokens, positions = _tokens()
    hidden = functools.partial(_hidden, policy, params)
    assert_packed_rows_equal_separate_rows(hidden, tokens, positions, (9, 6, 5), **TOLERANCE)


def test_a_token_does_not_affect_earlier_positions(policy):
    params = random_params(policy)
    tokens, positions = _tokens()
    before = _hidden(policy, params, tokens, positions, jnp.ones_like(tokens))
    after = _hidden(policy, params, tokens.at[:, 11].add(1), positions, jnp.ones_like(tokens))
    np.testing.assert_array_equal(before[:, :11], after[:, :11])
    assert not np.allclose(before[:, 11:], after[:, 11:])


@pytest.mark.slow
@pytest.mark.parametrize("row", [1, 3])
def test_a_row_decodes_to_the_same_bits_among_any_other_rows(policy, row):
    """Checks neighbour rows that are far longer, absent (padding) or have other tokens."""
    params = random_params(policy)
    own, _ = _tokens(rows=1)

    def decode(place, neighbours, neighbour_start):
        tokens = neighbours.at[place].set(own[0])
        # The longest neighbour row is more than one block of slots longer.
        starts = jnp.full((ROWS,), neighbour_start).at[place].set(0)
        positions = starts[:, None] + jnp.arange(LENGTH)[None]
        positions = jnp.where(positions > SLOTS, SLOTS, positions)
        cache = KVCache.create(policy.config, ROWS, SLOTS, "float32")
        outs = []
        for span in ((0, 8), *((t, t + 1) for t in range(8, LENGTH))):
            part = slice(*span)
            out, cache = _hidden_cached(policy, params, tokens[:, part], positions[:, part], cache)
            outs.append(out[place])
        return jnp.concatenate(outs)

    reference = decode(0, _tokens(seed=3)[0], 0)
    np.testing.assert_array_equal(reference, decode(row, _tokens(seed=4)[0], 130))
    np.testing.assert_array_equal(reference, decode(row, _tokens(seed=5)[0], SLOTS))


def test_padding_tokens_write_nothing_and_are_finite(policy):
    params = random_params(policy)
    tokens, positions = _tokens()
    positions = jnp.where(jnp.arange(ROWS)[:, None] == 1, SLOTS, positions)
    hidden, cache = _fill(policy, params, tokens, positions, [1] * LENGTH)
    assert np.isfinite(hidden).all()
    np.testing.assert_array_equal(cache.k_LBKSH[:, 1], 0.0)
    assert np.any(cache.k_LBKSH[:, 0, :, :LENGTH] != 0.0)


@pytest.mark.slow
def test_remat_does_not_change_gradients():
    policy = Policy(SMALL)
    params = random_params(policy)
    tokens, positions = _tokens()

    def gradient(policy):
        def loss(params):
            hidden = policy.hidden(params, tokens, positions, jnp.ones_like(tokens))
            return jnp.mean(jax.nn.logsumexp(policy.logits(params, hidden), axis=-1))

        return jax.jit(jax.grad(loss))(params)

    expected = gradient(policy)
    for remat in ("block", "dots"):
        found = gradient(dataclasses.replace(policy, remat=remat))
        chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("path", ["hidden", "hidden_cached"])
def test_the_traced_program_does_not_grow_with_depth(path):
    def count_equations(layers):
        policy = Policy(dataclasses.replace(SMALL, num_layers=layers))
        tokens, positions = _tokens()
        last = (
            jnp.ones_like(tokens)
            if path == "hidden"
            else jax.eval_shape(lambda: KVCache.create(policy.config, ROWS, SLOTS, "float32"))
        )
        method = getattr(policy, path)
        jaxpr = jax.make_jaxpr(method)(policy.abstract_params(), tokens, positions, last)
        return sum(1 for _ in equations(jaxpr.jaxpr))

    assert count_equations(4) == count_equations(24) > 50


def test_the_cache_is_updated_in_place():
    policy = Policy(SMALL)
    rows, slots = 8, 4096
    cache = jax.eval_shape(lambda: KVCache.create(SMALL, rows, slots, "float32"))
    tokens = jax.ShapeDtypeStruct((rows, 1), jnp.int32)
    step = jax.jit(policy.hidden_cached, donate_argnums=3)
    memory = step.lower(policy.abstract_params(), tokens, tokens, cache).compile().memory_analysis()
    cache_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache))
    assert memory.alias_size_in_bytes >= cache_bytes
    assert memory.temp_size_in_bytes < cache_bytes / 8


@pytest.mark.slow
def test_bfloat16_compute_stays_close_and_gives_float32_logits(policy):
    params = random_params(policy)
    tokens, positions = _tokens()
    low = dataclasses.replace(policy, dtype="bfloat16")
    hidden = _hidden(low, params, tokens, positions, jnp.ones_like(tokens))
    assert hidden.dtype == jnp.bfloat16
    assert _logits(low, params, hidden).dtype == jnp.float32
    reference = _hidden(policy, params, tokens, positions, jnp.ones_like(tokens))
    error = jnp.linalg.norm(hidden.astype(jnp.float32) - reference) / jnp.linalg.norm(reference)
    assert error < 0.05  # rounding error of an 8-bit mantissa in three layers


def test_weights_of_another_config_are_refused():
    params = Policy(FAMILIES["qwen3"]).init(jax.random.key(0))
    tokens, positions = _tokens()
    with pytest.raises(ValueError, match="the config describes"):
        Policy(SMALL).hidden(params, tokens, positions, jnp.ones_like(tokens))


@pytest.mark.parametrize("wrong", [dict(dtype="float16"), dict(remat="everything")])
def test_the_error_for_a_misspelled_setting_lists_the_valid_ones(wrong):
    with pytest.raises(ValueError, match="must be one of"):
        Policy(SMALL, **wrong)


@pytest.mark.slow
def test_split_layers_decode_like_stacked_layers_and_can_be_stacked_again():
    """Checks all types of parameters: biases, norms of q and k, and a separate output head."""
    policy = Policy(dataclasses.replace(SMALL, qk_norm=True, tie_embeddings=False))
    params = random_params(policy)
    backend = DecodeBackend(is_split=True)
    split = backend.prepare_params(params)
    expected, of_stacked = _fill(policy, params, *_tokens(), [LENGTH - 1, 1])
    found, of_split = _fill(policy, split, *_tokens(), [LENGTH - 1, 1])
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    chex.assert_trees_all_close(of_split, of_stacked, **TOLERANCE)
    chex.assert_trees_all_equal(backend.restore_params(split), params)


@pytest.mark.slow
def test_a_bfloat16_decode_loop_does_not_carry_a_float32_embedding_table():
    config = decoder_config(vocab_size=701)
    policy = Policy(config, dtype="bfloat16")
    params = jax.tree.map(lambda x: x.astype("bfloat16"), policy.init(jax.random.key(0)))

    @jax.jit
    def decode(params, tokens):
        def step(i, carry):
            cache, tokens = carry
            hidden, cache = policy.hidden_cached(params, tokens, jnp.full((3, 1), i), cache)
            best = jnp.argmax(policy.logits(params, hidden[:, 0]), axis=-1)
            return cache, best[:, None]

        cache = KVCache.create(config, 3, 4, "bfloat16")
        return jax.lax.fori_loop(0, 4, step, (cache, tokens))[1]

    program = decode.lower(params, jnp.ones((3, 1), jnp.int32)).compile().as_text()
    assert "bf16[701,32]{1,0} get-tuple-element(" in program
    assert "f32[701,32]{1,0} get-tuple-element(" not in program
