import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from transformers import AutoTokenizer

from agentgym_jax.export import export
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.models import sources
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import load_hf, save_hf
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import CHATML, COMPACT
from agentgym_jax.text.tokenizer import Tokenizer, byte_tokenizer, load_tokenizer
from agentgym_jax.text.train_tokenizer import train_tokenizer
from configs import quickstart
from tests.builders import decoder_config
from tests.model_files import save_run, train_like_qwen2

GOLDEN = pathlib.Path(__file__).parent / "golden" / "decoder"
OBSERVATIONS = [
    f"Goal: go to the {colour} ball\nIn front of you there is a {colour} {thing} {n} steps ahead, "
    f'a {thing} {n + 10} to your left.\n\nThe room is 7x{n}.\nAvailable actions: ["turn left", '
    f'"go to {colour} {thing} {n}"]\n'
    for colour in ("red", "green", "yellow")
    for thing in ("ball", "key", "door")
    for n in range(3)
]


def random_params(policy, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), policy.abstract_params()
    )


def make_run_folder(path, steps):
    """Writes those parts of a run folder that an export reads; step n has the weights of seed n."""
    shape = sources.resolve(str(GOLDEN / "qwen3")).config
    config = dataclasses.replace(shape, vocab_size=byte_tokenizer().vocab_size)
    policy = Policy(config)
    byte_tokenizer().save(path / "tokenizer")
    save_run(path, policy, {step: random_params(policy, step) for step in steps})
    return policy


def bias_config(vocab_size):
    """Returns the config of a decoder like Qwen2.5, with biases and without norms of q and k."""
    return decoder_config(vocab_size=vocab_size, max_position=4096)


def make_trained_run(path, template):
    """Writes a run folder whose tokenizer was trained like the quickstart's."""
    isolate = quickstart.get_config().tokenizer.pretokenizer_pattern
    tokenizer = train_tokenizer(
        OBSERVATIONS,
        vocab_size=400,
        pretokenizer_pattern=isolate,
        out=path / "tokenizer",
        template=template,
    )
    policy = Policy(bias_config(tokenizer.vocab_size))
    save_run(path, policy, {1: random_params(policy, 3)})
    return policy


def make_qwen_directory(path):
    """Writes a Hugging Face directory of type qwen2 whose tokenizer splits words like Qwen2."""
    special_tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend = train_like_qwen2(OBSERVATIONS, special_tokens)
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML}
    tokenizer = Tokenizer(backend.to_str(), names)
    tokenizer.save(path)
    config = json.loads((path / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "Qwen2Tokenizer"
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    policy = Policy(bias_config(tokenizer.vocab_size))
    save_hf(random_params(policy, 3), policy.config, path / "m", dtype="float32")
    for file in (path / "m").iterdir():
        file.rename(path / file.name)
    return policy


def assert_ids_of_transformers(out):
    """Checks that our token ids of texts and conversations equal those of transformers."""
    reference, tokenizer = AutoTokenizer.from_pretrained(out), load_tokenizer(out)
    renderer = ChatRenderer(tokenizer)
    for text in [*OBSERVATIONS, "a\n\n\nb  12345 'll e\u0301 \t\U0001f642\r\n"]:
        ids = tokenizer.encode(text)
        assert reference(text, add_special_tokens=False)["input_ids"] == ids
        assert reference.decode(ids) == tokenizer.decode(ids)
        messages = [{"role": "system", "content": "Walk."}, {"role": "user", "content": text}]
        theirs = reference.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)
        assert theirs["input_ids"] == sum(renderer.opening(messages), [])
    assert reference.eos_token_id == tokenizer.eos_id
    assert "token_type_ids" not in reference("go")


def assert_same(a, b):
    assert jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def test_a_run_folder_exports_the_parameters_of_its_latest_checkpoint(tmp_path):
    policy = make_run_folder(tmp_path / "run", steps=(2, 7))
    out = export(str(tmp_path / "run"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert sources.resolve(str(out)).config == policy.config
    assert_same(load_hf(out, policy), random_params(policy, 7))
    tokenizer = load_tokenizer(out)
    assert tokenizer.encode("go") == byte_tokenizer().encode("go")
    config = json.loads((out / "config.json").read_text())
    assert config["eos_token_id"] == tokenizer.special_tokens["<|im_end|>"]
    assert config["torch_dtype"] == "float32"


def test_a_run_folder_without_a_complete_checkpoint_cannot_be_exported(tmp_path):
    make_run_folder(tmp_path / "run", steps=())
    with pytest.raises(CheckpointError, match="no complete checkpoint yet"):
        export(str(tmp_path / "run"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_exporting_a_hugging_face_directory_keeps_its_weights(family, tmp_path):
    source = sources.resolve(str(GOLDEN / family))
    out = export(source.model, str(tmp_path / "out"), dtype="float32", overwrite=False)
    policy = Policy(source.config)
    assert sources.resolve(str(out)).config == source.config
    assert_same(load_hf(out, policy), load_hf(source.path, policy))


@pytest.mark.parametrize("template", [COMPACT, CHATML], ids=["compact", "chatml"])
def test_an_exported_tokenizer_gives_the_same_ids_in_transformers(template, tmp_path):
    policy = make_trained_run(tmp_path / "run", template)
    out = export(str(tmp_path / "run"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert_ids_of_transformers(out)
    assert sources.resolve(str(out)).config == policy.config
    assert_same(load_hf(out, policy), random_params(policy, 3))
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"


def test_a_preset_is_exported_without_a_tokenizer(tmp_path, monkeypatch):
    monkeypatch.setitem(sources.PRESETS, "tiny", decoder_config())
    target = export("tiny", str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert sources.resolve(str(target)).config == decoder_config()


def test_a_model_with_the_tokenizer_of_qwen2_keeps_the_type_qwen2(tmp_path):
    policy = make_qwen_directory(tmp_path / "in")
    out = export(str(tmp_path / "in"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert_ids_of_transformers(out)
    assert sources.resolve(str(out)).config == policy.config
    assert json.loads((out / "config.json").read_text())["model_type"] == "qwen2"


def test_an_export_does_not_claim_a_family_with_another_tokenizer(tmp_path):
    """Checks a directory of type qwen2 whose tokenizer.json splits words differently."""
    make_qwen_directory(tmp_path / "in")
    state = json.loads((tmp_path / "in" / "tokenizer.json").read_text())
    state["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[0-9]+|[a-z]+|\n"
    (tmp_path / "in" / "tokenizer.json").write_text(json.dumps(state))
    out = export(str(tmp_path / "in"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert_ids_of_transformers(out)


def test_a_llama_whose_output_projection_has_a_bias_is_refused(tmp_path):
    policy = make_trained_run(tmp_path / "run", COMPACT)
    out = export(str(tmp_path / "run"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    tensors = safetensors.numpy.load_file(out / "model.safetensors")
    tensors["model.layers.1.self_attn.o_proj.bias"][0] = 0.5
    safetensors.numpy.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="unexpected: model.layers.1.self_attn.o_proj.bias"):
        load_hf(out, policy)


def test_an_existing_output_directory_is_refused_before_the_model_is_loaded(tmp_path):
    shutil.copytree(GOLDEN / "qwen2", tmp_path / "out")
    with pytest.raises(FileExistsError, match="--overwrite"):
        export("no/such-model", str(tmp_path / "out"), dtype="float32", overwrite=False)


@pytest.mark.slow
def test_the_command_writes_bfloat16_by_default(tmp_path):
    command = [sys.executable, "-m", "agentgym_jax.export"]
    done = subprocess.run(
        [*command, f"--model={GOLDEN / 'llama'}", f"--out={tmp_path / 'out'}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"
