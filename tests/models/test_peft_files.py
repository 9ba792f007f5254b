"""Adapters in PEFT's format: round trip, stored forms, and refused directories."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy

from agentgym_jax.export import export
from agentgym_jax.learner import stored_weights
from agentgym_jax.models import peft_files, sources
from agentgym_jax.models.lora import TARGETS, Adapters, merge
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import save_hf
from tests.builders import decoder_config, decoder_families

FAMILIES = decoder_families(decoder_config(max_position=64))


def make(path, config, targets=TARGETS):
    """Writes a base and adapters; returns policy, base, adapters and their weights."""
    policy = Policy(config)
    base = policy.init(jax.random.key(0))
    save_hf(base, config, path / "base", dtype="float32")
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), 3, 6.0, targets)
    trained = jax.tree.map(lambda x: x + 0.1, adapters.init(jax.random.key(1)))
    (path / "peft").mkdir()
    peft_files.save(path / "peft", adapters, trained, base=str(path / "base"), dtype="float32")
    return policy, base, adapters, trained


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("targets", [TARGETS, ("q", "o", "down")], ids=str)
def test_saved_adapters_load_unchanged(tmp_path, family, targets):
    policy, base, adapters, trained = make(tmp_path, FAMILIES[family], targets)
    found = peft_files.load(tmp_path / "peft", policy)
    assert (found.adapters.targets, found.adapters.scale) == (targets, adapters.scale)
    jax.tree.map(np.testing.assert_array_equal, found.params, trained)
    source = sources.resolve(str(tmp_path / "peft"))
    assert source.kind == "peft_dir" and source.base.kind == "hf_dir"
    whole = stored_weights.load(source, policy)
    jax.tree.map(np.testing.assert_array_equal, whole, merge(adapters.attach(base, trained)))


def test_a_run_whose_base_is_not_found_says_so(tmp_path, monkeypatch):
    policy, _, adapters, _ = make(tmp_path, FAMILIES["qwen2"])
    (tmp_path / "run" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    base, run = sources.resolve("base"), tmp_path / "run"
    stored_weights.record_adapters(run / "model", adapters, base, "float32", 0)
    source = sources.ModelSource("run", "workdir", run, policy.config)
    assert stored_weights.base_source(source) == base
    monkeypatch.chdir(run)  # where the relative path of the base leads nowhere
    with pytest.raises(ValueError, match="the base of the adapters of run .*current folder"):
        stored_weights.base_source(source)


def test_an_export_does_not_replace_the_base_of_the_adapters(tmp_path):
    make(tmp_path, FAMILIES["qwen2"])
    before = (tmp_path / "base" / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="is the base of the adapters of .*peft, which need it"):
        export(str(tmp_path / "peft"), str(tmp_path / "base"), dtype="bfloat16", overwrite=True)
    assert (tmp_path / "base" / "model.safetensors").read_bytes() == before


def test_names_and_axes_are_those_of_peft(tmp_path):
    _, _, _, trained = make(tmp_path, FAMILIES["qwen2"])
    tensors = safetensors.numpy.load_file(tmp_path / "peft" / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.self_attn.o_proj.lora_A.weight"
    a = trained["layers"]["attention"]["o_lora_a"][1]  # [N, H, r]
    np.testing.assert_array_equal(tensors[name], a.reshape(32, 3).T)
    b = trained["layers"]["attention"]["k_lora_b"][0]  # [r, K, H]
    name = "base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight"
    np.testing.assert_array_equal(tensors[name], b.reshape(3, 16).T)
    assert len(tensors) == 2 * 7 * 2


def test_rank_stabilised_adapters_have_another_scale(tmp_path):
    policy, *_ = make(tmp_path, FAMILIES["qwen2"])
    change(tmp_path, use_rslora=True)
    assert peft_files.load(tmp_path / "peft", policy).adapters.scale == pytest.approx(6 / 3**0.5)


def change(path, **changes):
    file = path / "peft" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(peft_type="IA3"), "peft_type='IA3': expected LORA"),
        (dict(use_dora=True), "use_dora=True is not supported"),
        (dict(rank_pattern={"q_proj": 8}), "rank_pattern"),
        (dict(r=4), "does not fit the model"),
        (dict(base_model_name_or_path=""), "names no base_model_name_or_path"),
        (
            dict(base_model_name_or_path="/no/such"),
            "adapter_config.json: base_model_name_or_path='/no/such': .* no existing path",
        ),
    ],
)
def test_unsupported_adapters_are_refused_with_the_reason(tmp_path, changes, message):
    make(tmp_path, FAMILIES["qwen2"])
    change(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        sources.check_weights(sources.resolve(str(tmp_path / "peft")))


def test_adapters_of_another_model_are_refused(tmp_path):
    make(tmp_path, FAMILIES["qwen2"])
    other = Policy(decoder_config(hidden_size=64))
    with pytest.raises(ValueError, match="does not fit the model"):
        peft_files.load(tmp_path / "peft", other)


def test_a_lost_file_of_weights_is_named(tmp_path):
    policy, *_ = make(tmp_path, FAMILIES["qwen2"])
    (tmp_path / "peft" / "adapter_model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="adapter_model"):
        peft_files.load(tmp_path / "peft", policy)
