"""Mutated model folders and config values: each one works, or one line names the error.

Cases are drawn from a fixed seed. The files differ from valid ones in one or two places, because
random files would fail at the first check.
"""

import copy
import importlib
import json
import shutil

import hypothesis
import pytest
from hypothesis import strategies as st

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.jobs import evaluation
from agentgym_jax.jobs.serving import load_model
from agentgym_jax.rl import rl_config as rl
from agentgym_jax.supervised import agentevol, dpo, sft
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import decoder_config
from tests.examples import fixed, searches
from tests.model_files import save_model_and_adapters

DELETED = object()
JUNK = [
    *(None, True, False, 0, 1, -1, 3, 2**31, 10**9, 2**70, 10**400, 0.0, 0.5, -0.5, 1e308, 1e-300),
    *(float("nan"), float("inf"), "", "x", "2", "false", "\ud800", "a\nb", "/", "{{ x", "x" * 5000),
    *([], [None], [1], ["x"], [[]], {}, {"x": 1}, {"kind": "x"}, {"content": 3}, DELETED),
]
PARSERS = {
    "quickstart": rl.parse,
    "rl.bandit": rl.parse,
    "sft.trajectories": sft.parse,
    "dpo.trajectories": dpo.parse,
    "agentevol.textcraft_babyai": agentevol.parse,
    "eval.quickstart": evaluation.parse,
}
FILES = (
    ("base", "config.json"),
    ("base", "tokenizer.json"),
    ("base", "tokenizer_config.json"),
    ("base", "generation_config.json"),
    ("base", "model.safetensors.index.json"),
    ("peft", "adapter_config.json"),
)


def mutate(data, tree):
    """Replaces or removes one value of a tree of dictionaries and lists; returns its path."""
    path = []
    while True:
        places = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        path.append(data.draw(st.sampled_from(places)))
        child = tree[path[-1]]
        is_leaf = not isinstance(child, dict | list | tuple) or not child
        if is_leaf or data.draw(st.integers(0, 3)) == 0:
            break
        if isinstance(child, tuple):
            child = tree[path[-1]] = list(child)
        tree = child
    value = data.draw(st.sampled_from(JUNK))
    if value is DELETED:
        del tree[path[-1]]
    else:
        tree[path[-1]] = copy.deepcopy(value)
    return path


def check_line(error, *words):
    text = str(error)
    assert "\n" not in text and len(text) < 900, text
    assert any(word in text for word in words), text


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Returns a folder with a model of several files, `base`, and with adapters of it, `peft`."""
    path = tmp_path_factory.mktemp("fuzzed")
    config = decoder_config(vocab_size=byte_tokenizer().vocab_size, num_layers=1)
    save_model_and_adapters(path, config, max_shard_bytes=20_000)
    return path


@pytest.fixture(scope="module")
def configs():
    """Returns the plain config of every job."""
    load = lambda name: importlib.import_module(f"configs.{name}").get_config("smoke")
    return {name: plain(load(name)) for name in PARSERS}


@searches(40, 600)
def test_a_mutated_model_folder_works_or_is_refused_in_one_line(folders, examples):
    @fixed(examples, checks=False, phases=[hypothesis.Phase.generate])
    @hypothesis.given(data=st.data())
    def search(data):
        kind, name = data.draw(st.sampled_from(FILES))
        file = folders / kind / name
        valid = file.read_text()
        tree = json.loads(valid)
        for _ in range(data.draw(st.integers(1, 2))):
            if tree:
                mutate(data, tree)
        before = sorted(folders.rglob("*"))
        try:
            file.write_text(json.dumps(tree))
            load_model(str(folders / kind), dtype="float32")
        except ConfigError as error:
            check_line(error, name, "template", "the model", str(folders))
        finally:
            file.write_text(valid)
        assert sorted(folders.rglob("*")) == before

    search()


@searches(150, 3000)
def test_a_mutated_config_works_or_is_refused_in_one_line(configs, examples):
    @fixed(examples, checks=False, phases=[hypothesis.Phase.generate])
    @hypothesis.given(data=st.data())
    def search(data):
        job = data.draw(st.sampled_from(sorted(PARSERS)))
        config = copy.deepcopy(configs[job])
        path = mutate(data, config)
        try:
            PARSERS[job](config)
        except ConfigError as error:
            check_line(error, *(f"{key}" for key in path[:2]), "config")

    search()


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "null", "3", '"x"', "\x00", "{}"])
@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_file_that_is_no_json_object_is_named(folders, tmp_path, kind, name, text):
    path = tmp_path / "copy"
    shutil.copytree(folders / kind, path)
    (path / name).write_text(text)
    if (name, text) == ("generation_config.json", "{}"):
        return
    if (name, text) == ("tokenizer_config.json", "{}"):
        name = "template"
    with pytest.raises(ConfigError) as refused:
        load_model(str(path), dtype="float32")
    check_line(refused.value, name)
