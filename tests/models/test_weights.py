import dataclasses
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from flax.traverse_util import flatten_dict

from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models import sources
from agentgym_jax.models.hf_tensors import INDEX_FILE, RULES
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import load_hf, save_hf
from tests.builders import decoder_config, decoder_families

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "decoder"
FAMILIES = ("qwen2", "qwen3", "llama")

TINY = decoder_config(vocab_size=32, hidden_size=16, intermediate_size=24, head_size=4)
TINY_BY_FAMILY = decoder_families(TINY, qwen3=dict(head_size=8))


def random_params(policy, seed=0):
    """Returns random weights in which norms and biases also differ from their initial values."""
    leaves, tree = jax.tree.flatten(policy.abstract_params())
    rng = np.random.default_rng(seed)
    return tree.unflatten([jnp.asarray(rng.normal(size=x.shape), jnp.float32) for x in leaves])


def assert_trees_identical(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), (_, y) in zip(flatten_dict(a).items(), flatten_dict(b).items(), strict=True):
        assert x.dtype == y.dtype and np.array_equal(np.asarray(x), np.asarray(y)), path


def golden_policy(family):
    return Policy(sources.resolve(str(GOLDEN / family)).config)


def full_hidden(policy, params, tokens_BT):
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    return policy.hidden(params, tokens_BT, positions_BT, jnp.ones_like(tokens_BT))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_a_hugging_face_checkpoint_equal_those_of_transformers(family):
    golden = np.load(GOLDEN / family / "logits.npz")
    policy = golden_policy(family)
    params = load_hf(GOLDEN / family, policy)
    hidden_BTD = full_hidden(policy, params, jnp.asarray(golden["tokens"]))
    logits_BTV = np.asarray(policy.logits(params, hidden_BTD))[:, ::9]
    assert np.ptp(golden["logits"]) > 10  # the logits are clearly larger than noise around zero
    np.testing.assert_allclose(logits_BTV, golden["logits"], atol=2e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_cached_decoding_of_a_checkpoint_gives_the_logits_of_transformers(family):
    golden = np.load(GOLDEN / family / "logits.npz")
    tokens_BT = jnp.asarray(golden["tokens"])
    policy = golden_policy(family)
    params = load_hf(GOLDEN / family, policy)
    from_prefill_B1V, _ = prefill_then_decode(policy, params, tokens_BT)
    np.testing.assert_allclose(from_prefill_B1V[:, 0], golden["logits"][:, -1], atol=2e-4, rtol=0)


def prefill_then_decode(policy, params, tokens_BT):
    """Returns the logits of the last token, decoded alone after a prefill of all earlier tokens."""
    B, T = tokens_BT.shape
    cache = KVCache.create(policy.config, B, T, "float32")
    positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))
    step = jax.jit(policy.hidden_cached)
    _, cache = step(params, tokens_BT[:, :-1], positions_BT[:, :-1], cache)
    hidden_B1D, cache = step(params, tokens_BT[:, -1:], positions_BT[:, -1:], cache)
    return np.asarray(policy.logits(params, hidden_B1D)), cache


@pytest.mark.parametrize("family", FAMILIES)
def test_export_and_import_give_the_same_bits(family, tmp_path):
    policy = Policy(TINY_BY_FAMILY[family])
    params = random_params(policy)
    save_hf(params, policy.config, tmp_path / "out", dtype="float32")
    assert sources.resolve(str(tmp_path / "out")).config == policy.config
    assert_trees_identical(load_hf(tmp_path / "out", policy), params)


def test_all_files_of_an_export_have_the_same_permissions(tmp_path):
    save_hf(random_params(Policy(TINY)), TINY, tmp_path / "out", dtype="float32")
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1


def test_a_split_export_equals_a_single_file_export(tmp_path):
    policy = Policy(TINY)
    params = random_params(policy)
    save_hf(params, TINY, tmp_path / "one", dtype="float32")
    save_hf(params, TINY, tmp_path / "many", dtype="float32", max_shard_bytes=2000)
    files = sorted(p.name for p in (tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "many" / INDEX_FILE).read_text())
    assert index["metadata"]["total_size"] == 4 * policy.num_parameters
    assert not (tmp_path / "one" / INDEX_FILE).exists()
    assert_trees_identical(load_hf(tmp_path / "many", policy), params)


def test_a_bfloat16_export_contains_the_rounded_parameters(tmp_path):
    policy = Policy(TINY)
    params = random_params(policy)
    save_hf(params, TINY, tmp_path / "out", dtype="bfloat16")
    stored = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert {x.dtype for x in stored.values()} == {np.dtype(ml_dtypes.bfloat16)}
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    assert_trees_identical(load_hf(tmp_path / "out", policy, dtype="bfloat16"), rounded)
    widened = jax.tree.map(lambda x: x.astype(jnp.float32), rounded)
    assert_trees_identical(load_hf(tmp_path / "out", policy), widened)


@pytest.mark.parametrize("sizes", [dict(data=8), dict(fsdp=4, tensor=2), dict(fsdp=2, tensor=4)])
def test_parameters_are_loaded_directly_onto_their_shards(sizes, tmp_path):
    policy = Policy(TINY)
    params = random_params(policy)
    save_hf(params, TINY, tmp_path / "out", dtype="float32")
    layout = Layout(make_mesh(**dict(data=1, fsdp=1, tensor=1) | sizes), TRAIN_RULES)
    sharded = load_hf(tmp_path / "out", policy, layout)
    assert_trees_identical(sharded, params)
    expected = policy.param_shardings(layout)
    assert jax.tree.all(jax.tree.map(lambda x, s: x.sharding == s, sharded, expected))
    save_hf(sharded, TINY, tmp_path / "again", dtype="float32")
    one, two = ((tmp_path / d / "model.safetensors").read_bytes() for d in ("out", "again"))
    assert one == two


def edited_export(tmp_path, edit):
    """Exports random weights, applies `edit` to the dictionary of tensors and saves the result."""
    save_hf(random_params(Policy(TINY)), TINY, tmp_path / "out", dtype="float32")
    file = tmp_path / "out" / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    edit(tensors)
    safetensors.numpy.save_file(tensors, file)
    return tmp_path / "out"


def test_one_error_names_all_missing_unexpected_and_misshapen_arrays(tmp_path):
    def edit(tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.0.self_attn.gate.weight"] = np.zeros(3, np.float32)
        tensors["model.norm.weight"] = np.zeros(17, np.float32)

    with pytest.raises(ValueError) as raised:
        load_hf(edited_export(tmp_path, edit), Policy(TINY))
    message = str(raised.value)
    assert "1 missing: model.layers.1.mlp.up_proj.weight" in message
    assert "1 unexpected: model.layers.0.self_attn.gate.weight" in message
    assert "1 wrongly shaped: model.norm.weight is (17,), expected (16,)" in message


def test_a_tied_checkpoint_may_also_store_its_head(tmp_path):
    def edit(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

    directory = edited_export(tmp_path, edit)
    assert_trees_identical(load_hf(directory, Policy(TINY)), random_params(Policy(TINY)))


def test_an_untied_config_does_not_accept_a_tied_checkpoint(tmp_path):
    directory = edited_export(tmp_path, lambda tensors: None)
    untied = Policy(dataclasses.replace(TINY, tie_embeddings=False))
    with pytest.raises(ValueError, match=r"1 missing: lm_head\.weight"):
        load_hf(directory, untied)


def test_the_error_for_an_incomplete_file_names_it(tmp_path):
    file = edited_export(tmp_path, lambda tensors: None) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors .* is no complete safetensors file"):
        load_hf(file.parent, Policy(TINY))


def test_the_error_for_a_missing_part_of_a_split_checkpoint_names_it(tmp_path):
    shutil.copytree(GOLDEN / "llama", tmp_path / "llama")
    (tmp_path / "llama" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no 'model-00002-of-00002"):
        load_hf(tmp_path / "llama", golden_policy("llama"))


def test_a_file_whose_name_is_too_long_is_missing(tmp_path):
    shutil.copytree(GOLDEN / "llama", tmp_path / "llama")
    index = tmp_path / "llama" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "x" * 5000}}))
    with pytest.raises(FileNotFoundError, match=r"has no 'x+\.\.\.x+'\. A Hugging Face directory"):
        load_hf(tmp_path / "llama", golden_policy("llama"))


def test_an_existing_export_is_only_replaced_on_request(tmp_path):
    policy = Policy(TINY)
    save_hf(random_params(policy, 0), TINY, tmp_path / "out", dtype="float32")
    with pytest.raises(FileExistsError, match="--overwrite"):
        save_hf(random_params(policy, 1), TINY, tmp_path / "out", dtype="float32")
    assert_trees_identical(load_hf(tmp_path / "out", policy), random_params(policy, 0))
    save_hf(random_params(policy, 1), TINY, tmp_path / "out", dtype="float32", overwrite=True)
    assert_trees_identical(load_hf(tmp_path / "out", policy), random_params(policy, 1))


def test_a_directory_that_is_not_an_export_is_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="is no earlier export"):
        save_hf({}, TINY, tmp_path / "thesis", dtype="float32", overwrite=True)


def test_a_failed_export_leaves_no_files_and_keeps_the_old_export(tmp_path):
    policy = Policy(TINY)
    params = random_params(policy)
    save_hf(params, TINY, tmp_path / "out", dtype="float32")
    without_tokenizer = tmp_path / "empty"
    without_tokenizer.mkdir()
    with pytest.raises(FileNotFoundError, match="has no tokenizer"):
        save_hf(
            params,
            TINY,
            tmp_path / "out",
            dtype="float32",
            overwrite=True,
            tokenizer_files=without_tokenizer,
        )
    assert_trees_identical(load_hf(tmp_path / "out", policy), params)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "out"]


def test_an_export_contains_tokenizer_files_and_special_token_ids(tmp_path):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    added = [{"id": 30, "content": "<|endoftext|>"}, {"id": 31, "content": "<|im_end|>"}]
    (tokenizer / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    special = {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(special))
    (tokenizer / "notes.txt").write_text("not part of a tokenizer")
    params = random_params(Policy(TINY))
    save_hf(params, TINY, tmp_path / "out", dtype="float32", tokenizer_files=tokenizer)
    out = tmp_path / "out"
    assert (out / "tokenizer.json").read_bytes() == (tokenizer / "tokenizer.json").read_bytes()
    assert not (out / "notes.txt").exists()
    for name in ("config.json", "generation_config.json"):
        written = json.loads((out / name).read_text())
        assert (written["eos_token_id"], written["pad_token_id"]) == (31, 30)
        assert "bos_token_id" not in written


def test_every_parameter_has_a_conversion_rule_and_every_rule_a_parameter():
    paths = set()
    for config in TINY_BY_FAMILY.values():
        paths |= set(flatten_dict(Policy(config).abstract_params()))
    only_exported = {("layers", "attention", "o_bias")}
    assert paths | only_exported == set(RULES)
