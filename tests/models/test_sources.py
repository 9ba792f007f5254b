import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models import sources
from agentgym_jax.models.config import PRESETS
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "decoder"


def test_a_preset_has_a_config_but_no_path():
    source = sources.resolve("qwen2.5-0.5b")
    assert (source.kind, source.path, source.tokenizer_path) == ("preset", None, None)
    assert source.config == PRESETS["qwen2.5-0.5b"]


def test_a_directory_takes_precedence_over_a_preset_of_the_same_name(tmp_path, monkeypatch):
    shutil.copytree(GOLDEN / "qwen2", tmp_path / "qwen2.5-0.5b")
    monkeypatch.chdir(tmp_path)
    source = sources.resolve("qwen2.5-0.5b")
    assert (source.kind, source.config.hidden_size) == ("hf_dir", 32)


def test_a_run_folder_provides_model_config_and_tokenizer(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text("{}")  # config of a training run, not of a model
    shutil.copytree(GOLDEN / "qwen3", tmp_path / "model")
    source = sources.resolve(str(tmp_path))
    assert (source.kind, source.path) == ("workdir", tmp_path)
    assert source.tokenizer_path == tmp_path / "tokenizer"
    assert source.config.qk_norm
    with pytest.raises(ValueError, match="is no directory of whole weights"):
        sources.load_params(source, Policy(source.config))
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(ValueError, match="is an evaluation, which has no weights"):
        sources.resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-thing", "no existing path, no preset .* and no hub id"),
        ("/no/such/directory", "no existing path, no preset .* and no hub id"),
        ("model.bin", "is a file; expected a directory"),
    ],
)
def test_the_error_for_an_unknown_name_lists_accepted_kinds(name, message, tmp_path, monkeypatch):
    (tmp_path / "model.bin").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        sources.resolve(name)


def test_the_error_for_a_directory_without_a_config_explains_the_format(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json\. A model is"):
        sources.resolve(str(tmp_path))


def test_the_error_for_a_hub_id_without_network_asks_for_a_local_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))  # the hub is offline in the tests
    with pytest.raises(
        FileNotFoundError, match="the model nobody/nothing is no local path.*pass its"
    ):
        sources.resolve("nobody/nothing")


def test_weights_of_another_config_are_refused():
    source = sources.resolve(str(GOLDEN / "qwen2"))
    other = Policy(sources.resolve(str(GOLDEN / "qwen3")).config)
    with pytest.raises(ValueError, match="the policy was built for"):
        sources.load_params(source, other)


@pytest.mark.slow
def test_random_weights_of_a_preset_have_the_given_seed_type_and_layout():
    config = decoder_config(vocab_size=32, hidden_size=16, intermediate_size=24, head_size=4)
    source = sources.ModelSource("tiny", "preset", None, config)
    policy = Policy(config)
    layout = Layout(make_mesh(data=1, fsdp=4, tensor=2), TRAIN_RULES)
    one = sources.load_params(source, policy, seed=3)
    two = sources.load_params(source, policy, layout, dtype="bfloat16", seed=4)
    kernel = lambda params: np.asarray(params["layers"]["mlp"]["up_kernel"], np.float32)
    assert np.abs(kernel(two) - kernel(one)).max() > 0.01
    assert {x.dtype for x in jax.tree.leaves(two)} == {jnp.dtype("bfloat16")}
    expected = policy.param_shardings(layout)
    assert jax.tree.all(jax.tree.map(lambda x, s: x.sharding == s, two, expected))
