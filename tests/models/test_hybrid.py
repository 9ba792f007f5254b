"""Decoder of Qwen3.5; tests/parity compares it with transformers."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import transformers

from agentgym_jax.learner.accumulation import accumulate_gradients
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models import sources
from agentgym_jax.models.config import from_hf_config, to_hf_config
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.hybrid import create_cache
from agentgym_jax.models.kv_cache import copy_rows
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import load_hf, save_hf
from tests.builders import hybrid_config
from tests.models.decoder_parts import (
    assert_packed_rows_equal_separate_rows,
    fill,
    random_params,
    random_tokens,
)

# Outputs of delta nets that are close to 0 are normalised; a large constant keeps this from multiplying
# rounding errors.
CONFIG = hybrid_config(norm_eps=1e-3)
POLICY = Policy(CONFIG)
ROWS, LENGTH, SLOTS = 3, 20, 32
# Tolerance for float32 sums in another order; hidden states are of order 1.
TOLERANCE = dict(rtol=1e-4, atol=1e-4)

_hidden = jax.jit(POLICY.hidden)
_hidden_cached = jax.jit(POLICY.hidden_cached)


@pytest.fixture(scope="module")
def params():
    return random_params(POLICY)


def _tokens(rows=ROWS, seed=2):
    return random_tokens(rows, LENGTH, seed)


def _empty_cache(rows=ROWS):
    return create_cache(CONFIG, rows, SLOTS, "float32")


def _fill(params, tokens, positions, pieces, cache=None):
    """Returns the hidden states of tokens that are prefilled in pieces, and the filled cache."""
    cache = _empty_cache(len(tokens)) if cache is None else cache
    hidden_cached = functools.partial(_hidden_cached, params)
    return fill(hidden_cached, tokens, positions, pieces, cache)


def test_the_parameter_tree_has_the_documented_names_and_shapes():
    abstract = POLICY.abstract_params()
    G, D, F, V = 2, 32, 48, 101
    common = {
        "attention_norm": {"scale": (G, D)},
        "mlp_norm": {"scale": (G, D)},
        "mlp": {"gate_kernel": (G, D, F), "up_kernel": (G, D, F), "down_kernel": (G, F, D)},
    }
    delta_net = {
        "qkv_kernel": (G, D, 64),
        "z_kernel": (G, D, 4, 10),
        "beta_kernel": (G, D, 4),
        "decay_kernel": (G, D, 4),
        "out_kernel": (G, 4, 10, D),
        "conv_weight": (G, 64, 4),
        "decay_bias": (G, 4),
        "log_rate": (G, 4),
        "norm": (G, 10),
    }
    attention = {
        "q_kernel": (G, D, 4, 16),
        "k_kernel": (G, D, 2, 8),
        "v_kernel": (G, D, 2, 8),
        "o_kernel": (G, 4, 8, D),
        "q_norm": (G, 8),
        "k_norm": (G, 8),
    }
    assert jax.tree.map(lambda x: x.shape, abstract) == {
        "embed": {"embedding": (V, D)},
        "layers": {
            "linear_0": common | {"delta_net": delta_net},
            "full": common | {"attention": attention},
        },
        "final_norm": {"scale": (D,)},
    }
    axes = POLICY.logical_axes()
    ranks = jax.tree.map(
        lambda a, x: len(a) == x.ndim, axes, abstract, is_leaf=lambda a: isinstance(a, tuple)
    )
    assert all(jax.tree.leaves(ranks))


@pytest.mark.parametrize(
    "pieces", [(1,) * LENGTH, (7, 13), (LENGTH,)], ids=["decoded", "in pieces", "at once"]
)
def test_cached_tokens_equal_teacher_forcing(params, pieces):
    tokens, positions = _tokens()
    forced = _hidden(params, tokens, positions, jnp.ones_like(tokens))
    cached, _ = _fill(params, tokens, positions, pieces)
    np.testing.assert_allclose(cached, forced, **TOLERANCE)


def test_packed_rows_equal_separate_rows(params):
    tokens, positions = _tokens()
    lengths = (9, 6, 2)  # the convolution sees more tokens than the last segment has
    hidden = functools.partial(_hidden, params)
    assert_packed_rows_equal_separate_rows(hidden, tokens, positions, lengths, **TOLERANCE)


def test_a_row_that_begins_again_forgets_its_earlier_tokens(params):
    tokens, positions = _tokens()
    fresh, _ = _fill(params, tokens, positions, (7, 13))
    _, used = _fill(params, *_tokens(seed=3), (7, 13))
    again, _ = _fill(params, tokens, positions, (7, 13), used)
    np.testing.assert_array_equal(again, fresh)


def test_padding_does_not_change_the_memory_of_a_row(params):
    tokens, positions = _tokens()
    _, before = _fill(params, tokens, positions, (7,))
    # Row 1 has no token in the next call and row 2 only four; the other tokens are padding.
    is_token = jnp.arange(13)[None] < jnp.array([13, 0, 4])[:, None]
    padded = jnp.where(is_token, positions[:, 7:], SLOTS)
    hidden, after = _hidden_cached(params, tokens[:, 7:], padded, before)
    assert np.isfinite(hidden).all()
    np.testing.assert_array_equal(after.state_LBNHP[:, 1], before.state_LBNHP[:, 1])
    np.testing.assert_array_equal(after.tail_LBRC[:, 1], before.tail_LBRC[:, 1])
    _, short = _fill(params, tokens, positions, (7, 1, 1, 1, 1))
    np.testing.assert_allclose(after.state_LBNHP[:, 2], short.state_LBNHP[:, 2], **TOLERANCE)
    np.testing.assert_allclose(after.tail_LBRC[:, 2], short.tail_LBRC[:, 2], **TOLERANCE)


def test_a_copied_row_continues_like_its_source(params):
    tokens, positions = _tokens()
    _, cache = _fill(params, tokens, positions, (7,))
    cache = copy_rows(cache, jnp.array([0]), jnp.array([2]))
    tokens = tokens.at[2].set(tokens[0])
    rest, _ = _hidden_cached(params, tokens[:, 7:], positions[:, 7:], cache)
    np.testing.assert_array_equal(rest[2], rest[0])


def _loss(params, batch):
    tokens, positions = batch
    hidden = POLICY.hidden(params, tokens, positions, jnp.ones_like(tokens))
    value = jnp.sum(jax.nn.logsumexp(POLICY.logits(params, hidden), axis=-1))
    return value, ({}, {})


@pytest.mark.slow
def test_gradients_are_finite_and_do_not_depend_on_the_size_of_a_micro_batch(params):
    batch = _tokens(rows=4)

    @functools.partial(jax.jit, static_argnums=1)
    def gradient(params, count):
        parts = jax.tree.map(lambda x: x.reshape(count, 4 // count, LENGTH), batch)
        return accumulate_gradients(_loss, params, parts, jnp.int32(count))[1]

    one, two = gradient(params, 1), gradient(params, 2)
    assert all(np.isfinite(x).all() and np.any(x != 0) for x in jax.tree.leaves(one))
    chex.assert_trees_all_close(one, two, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_remat_does_not_change_gradients(params):
    def gradient(policy):
        tokens, positions = _tokens()
        loss = lambda params: jnp.mean(
            policy.hidden(params, tokens, positions, jnp.ones_like(tokens)) ** 3
        )
        return jax.jit(jax.grad(loss))(params)

    found = gradient(dataclasses.replace(POLICY, remat="block"))
    chex.assert_trees_all_close(found, gradient(POLICY), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_split_layers_decode_like_stacked_layers(params):
    backend = DecodeBackend(is_split=True)
    split = backend.prepare_params(params)
    tokens, positions = _tokens()
    expected, _ = _fill(params, tokens, positions, (7, 1))
    found, _ = _fill(split, tokens, positions, (7, 1))
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    chex.assert_trees_all_equal(backend.restore_params(split), params)


@pytest.mark.slow
def test_bfloat16_compute_stays_close(params):
    tokens, positions = _tokens()
    low = jax.jit(dataclasses.replace(POLICY, dtype="bfloat16").hidden)
    hidden = low(params, tokens, positions, jnp.ones_like(tokens))
    assert hidden.dtype == jnp.bfloat16
    reference = _hidden(params, tokens, positions, jnp.ones_like(tokens))
    error = jnp.linalg.norm(hidden.astype(jnp.float32) - reference) / jnp.linalg.norm(reference)
    assert error < 0.1  # rounding error of an 8-bit mantissa in four layers


@pytest.mark.parametrize("changes", [{}, dict(tie_embeddings=False)], ids=["tied", "untied"])
def test_export_and_import_give_the_same_bits(changes, tmp_path):
    policy = Policy(hybrid_config(**changes))
    rng = np.random.default_rng(0)
    random = lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32)
    params = jax.tree.map(random, policy.abstract_params())
    save_hf(params, policy.config, tmp_path / "out", dtype="float32")
    assert sources.resolve(str(tmp_path / "out")).config == policy.config
    chex.assert_trees_all_equal(load_hf(tmp_path / "out", policy), params)


def test_vision_tower_and_multi_token_head_of_a_released_checkpoint_are_ignored(params, tmp_path):
    save_hf(params, CONFIG, tmp_path / "out", dtype="float32")
    file = tmp_path / "out" / "model.safetensors"
    stored = safetensors.numpy.load_file(file)
    assert stored["model.layers.2.linear_attn.conv1d.weight"].shape == (64, 1, 4)
    assert "model.layers.3.self_attn.q_proj.weight" in stored
    released = {name.replace("model.", "model.language_model.", 1): x for name, x in stored.items()}
    released["model.visual.blocks.0.norm1.weight"] = np.zeros(3, np.float32)
    released["mtp.fc.weight"] = np.zeros((3, 3), np.float32)
    safetensors.numpy.save_file(released, file)
    chex.assert_trees_all_equal(load_hf(tmp_path / "out", POLICY), params)
    released["model.language_model.layers.0.linear_attn.other"] = np.zeros(3, np.float32)
    safetensors.numpy.save_file(released, file)
    with pytest.raises(ValueError, match="1 unexpected: model.layers.0.linear_attn.other"):
        load_hf(tmp_path / "out", POLICY)


def test_transformers_reads_our_config_and_we_read_theirs():
    theirs = transformers.AutoConfig.for_model(**to_hf_config(CONFIG))
    assert from_hf_config(theirs.to_dict()) == CONFIG
    assert from_hf_config(to_hf_config(CONFIG)) == CONFIG
    whole = {"model_type": "qwen3_5", "text_config": theirs.to_dict(), "vision_config": {}}
    assert from_hf_config(whole | {"tie_word_embeddings": True}) == CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["full_attention", "linear_attention"] * 2}, "layer_types must repeat"),
        ({"attn_output_gate": False}, "attn_output_gate=False"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"layer_types": None, "full_attention_interval": 3}, "num_layers=4 is not a multiple"),
    ],
)
def test_an_unsupported_variant_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        from_hf_config(to_hf_config(CONFIG) | change)


def test_several_devices_are_refused():
    layout = Layout(make_mesh(data=8, fsdp=1, tensor=1), TRAIN_RULES)
    with pytest.raises(ValueError, match="runs on one device, but the mesh has 8"):
        Policy(CONFIG, layout=layout)
