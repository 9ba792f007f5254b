"""Model folders that cannot be used as they are: refused by name, equally by all that open a model."""

import functools
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import agentgym_jax
from agentgym_jax.config.model import ModelSettings, resolve_source
from agentgym_jax.export import export
from agentgym_jax.jobs.serving import load_model
from agentgym_jax.models import sources
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import save_hf
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import byte_tokenizer, load_tokenizer
from tests.builders import decoder_config
from tests.model_files import save_model_and_adapters, zeros

CONFIG = decoder_config(vocab_size=byte_tokenizer().vocab_size, max_position=64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Returns a folder with a model, `base`, and with adapters of it, `peft`."""
    path = tmp_path_factory.mktemp("models")
    save_model_and_adapters(path, CONFIG)
    return path


@pytest.fixture
def models(folders, tmp_path):
    """Returns a copy of `folders` that a test may change."""
    for name in ("base", "peft"):
        shutil.copytree(folders / name, tmp_path / name)
    change(
        tmp_path / "peft" / "adapter_config.json", base_model_name_or_path=str(tmp_path / "base")
    )
    return tmp_path


def change(path, **values):
    """Replaces values of a JSON file; `...` removes a key."""
    changed = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({key: value for key, value in changed.items() if value is not ...}))


def change_tensor(path, name, value):
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(tensors | {name: value}, path)


# file, its change, and words of the message
BASE = [
    ("config.json", dict(quantization_config={"quant_method": "gptq"}), "quantization_config="),
    (
        "config.json",
        dict(tie_word_embeddings="false"),
        "tie_word_embeddings='false': expected True",
    ),
    ("config.json", dict(rope_theta=None), "rope_theta=None: expected a number"),
    ("config.json", dict(num_hidden_layers="2"), "num_hidden_layers='2': expected a whole number"),
    ("config.json", dict(num_hidden_layers=10**9), "num_hidden_layers=1000000000: expected"),
    ("config.json", dict(rms_norm_eps=None), "rms_norm_eps=None: expected a number"),
    ("config.json", dict(max_position_embeddings=None), "max_position_embeddings=None"),
    ("config.json", dict(rope_scaling={"rope_type": "linear"}), "'linear' lacks factor"),
    ("config.json", dict(rope_scaling=[1]), "rope_scaling=[1]: expected a section or None"),
    ("config.json", dict(layer_types=["sliding_attention"] * 2), "layer_types="),
    ("config.json", dict(is_causal=False), "is_causal=False"),
    ("model.safetensors.index.json", dict(metadata={}), "has no weight_map"),
    ("model.safetensors.index.json", dict(weight_map={"x": 3}), "weight_map={'x': 3}: expected"),
    ("model.safetensors.index.json", dict(weight_map={"x": "../x"}), "weight_map names '../x'"),
    ("tokenizer_config.json", dict(bos_token=5), "bos_token=5: expected a text"),
    ("tokenizer_config.json", dict(chat_template=5), "chat_template=5: expected a text"),
    ("tokenizer.json", dict(added_tokens=None), "tokenizer.json is not one of `tokenizers`"),
    ("tokenizer.json", dict(model=None), "tokenizer.json is not one of `tokenizers`"),
    ("generation_config.json", dict(eos_token_id="</s>"), "eos_token_id='</s>': expected"),
    ("generation_config.json", dict(eos_token_id=[300]), "ids up to 300, the model only 261"),
]
PEFT = [
    (dict(init_lora_weights="pissa"), "init_lora_weights='pissa' is not supported"),
    (dict(init_lora_weights="olora"), "init_lora_weights='olora' is not supported"),
    (dict(init_lora_weights="corda"), "init_lora_weights='corda' is not supported"),
    (dict(init_lora_weights="loftq"), "init_lora_weights='loftq' is not supported"),
    (dict(alora_invocation_tokens=[1, 2]), "alora_invocation_tokens=[1, 2] is not supported"),
    (dict(arrow_config={"top_k": 2}), "arrow_config={'top_k': 2} is not supported"),
    (dict(use_bdlora=True), "use_bdlora=True is not supported"),
    (dict(an_option_of_tomorrow=0.5), "an_option_of_tomorrow=0.5 is not supported"),
    (dict(modules_to_save=["lm_head"]), "modules_to_save=['lm_head'] is not supported"),
    (dict(revision="v2"), "revision='v2' is not supported"),
    (dict(lora_alpha=...), "lacks lora_alpha"),
    (dict(lora_alpha=None), "lora_alpha=None: expected a number"),
    (dict(r="2"), "r='2': expected a whole number"),
    (dict(base_model_name_or_path=3), "base_model_name_or_path=3: expected a text or None"),
]


def message(model, out):
    """Returns the message with which training, serving, export and the API refuse a model."""
    settings = ModelSettings(source=model, dtype="float32", decode_dtype="float32", remat="none")
    tokenizer = lambda: sources.read_tokenizer(resolve_source(settings))  # like a training job
    doors = [
        tokenizer,
        functools.partial(load_model, model),
        functools.partial(agentgym_jax.load_policy, model, rows=1, context=16),
        functools.partial(export, model, str(out), dtype="float32", overwrite=False),
    ]
    texts = []
    for door in doors:
        with pytest.raises(ValueError) as refused:  # noqa: PT011 - the callers compare the text
            door()
        texts.append(str(refused.value))
    assert not out.exists()
    # Each door puts the name of its option in front of the same reason.
    reason = min(texts, key=len)
    assert all(text.endswith(reason) for text in texts), texts
    assert "\n" not in reason and len(reason) < 500
    return reason


@pytest.mark.parametrize(("file", "values", "words"), BASE)
def test_a_changed_file_of_a_model_is_refused_by_file_and_field(models, file, values, words):
    change(models / "base" / file, **values)
    assert words in message(str(models / "base"), models / "out")


@pytest.mark.parametrize(("values", "words"), PEFT)
def test_an_option_of_adapters_is_refused_by_name(models, values, words):
    change(models / "peft" / "adapter_config.json", **values)
    text = message(str(models / "peft"), models / "out")
    assert words in text and "adapter_config.json" in text


def test_options_of_adapters_without_an_effect_are_accepted(models):
    off = dict(modules_to_save=[], rank_pattern={}, use_dora=False, layers_to_transform=None)
    plain = dict(init_lora_weights="gaussian", peft_version="0.19", an_option_of_tomorrow=None)
    change(models / "peft" / "adapter_config.json", **off, **plain)
    assert sources.resolve(str(models / "peft")).kind == "peft_dir"


def test_adapters_that_name_themselves_as_their_base_are_refused(models):
    path = models / "peft"
    change(path / "adapter_config.json", base_model_name_or_path=str(path))
    assert "leads back to these adapters" in message(str(path), models / "out")


def test_a_tokenizer_with_more_ids_than_embeddings_is_refused_by_all(models):
    small = decoder_config(vocab_size=260, max_position=64)
    params = zeros(Policy(small))
    target, tokenizer = models / "small", models / "base"
    save_hf(params, small, target, dtype="float32", tokenizer_files=tokenizer)
    assert "ids up to 260, the model only 260 embeddings" in message(str(target), models / "out")


def test_another_output_head_of_a_tied_model_is_refused(models):
    weights = models / "base" / "model.safetensors"
    embedding = safetensors.numpy.load_file(weights)["model.embed_tokens.weight"]
    change_tensor(weights, "lm_head.weight", embedding)
    assert sources.resolve(str(models / "base")).config.tie_embeddings
    change_tensor(weights, "lm_head.weight", embedding + 1.0)
    assert "lm_head.weight differs from model.embed_tokens" in message(
        str(models / "base"), models / "out"
    )


@pytest.mark.parametrize("folder", ["base", "peft"])
def test_tensors_of_whole_numbers_are_refused(models, folder):
    files = {"base": "model.safetensors", "peft": "adapter_model.safetensors"}
    weights = models / folder / files[folder]
    name, value = next(iter(safetensors.numpy.load_file(weights).items()))
    change_tensor(weights, name, np.zeros(value.shape, np.int8))
    text = message(str(models / folder), models / "out")
    assert f"{name} has type I8" in text and "Quantised weights" in text


@pytest.mark.parametrize("folder", ["base", "peft"])
def test_the_end_tokens_of_a_model_end_a_turn_in_a_run_and_after_an_export(models, folder):
    """Also checks a directory of adapters, whose base has the file."""
    change(models / "base" / "generation_config.json", eos_token_id=[256, 10])
    tokenizer = sources.read_tokenizer(sources.resolve(str(models / folder)))
    plain = ChatRenderer(byte_tokenizer()).stop_ids
    assert ChatRenderer(tokenizer).stop_ids == (*plain, 256, 10)
    tokenizer.save(models / "run")
    assert ChatRenderer(load_tokenizer(models / "run")).stop_ids == (*plain, 256, 10)
    if folder == "peft":
        byte_tokenizer().save(models / "peft")
    export(str(models / folder), str(models / "out"), dtype="float32", overwrite=False)
    generation = json.loads((models / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [256, 10]
