"""Adapters in every job: checkpoints, resumed runs, exports."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from agentgym_jax.export import export, export_adapters
from agentgym_jax.learner import stored_weights
from agentgym_jax.models import sources
from agentgym_jax.models.policy import Policy
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests import fast_programs
from tests.builders import decoder_config
from tests.model_files import save_random_model

ROOT = pathlib.Path(__file__).parents[2]
RUNS = ("agentevol", "dpo", "mixture", "mixture unmerged", "ppo", "reinforce")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Returns the Hugging Face directory of the frozen weights."""
    config = decoder_config(vocab_size=byte_tokenizer().vocab_size, max_position=4096)
    return save_random_model(tmp_path_factory.mktemp("base"), config, seed=7)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, base):
    folder = tmp_path_factory.mktemp("runs")
    command = [sys.executable, "-m", "tests.integration.lora_jobs", str(folder), str(base)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/integration'}"}
    env |= fast_programs.variables()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def load(path):
    source = sources.resolve(str(path))
    return stored_weights.load(source, Policy(source.config))


def trained(path):
    source = sources.resolve(str(path))
    return stored_weights.load_adapters(source, Policy(source.config))[1]


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("name", RUNS)
def test_every_job_trains_and_saves_adapters_only(runs, base, name):
    assert all(path[-1][-7:-1] == "_lora_" for path in flatten_dict(trained(runs / name)))
    first = flatten_dict(load(base))
    changed = {
        path for path, x in flatten_dict(load(runs / name)).items() if np.any(x != first[path])
    }
    assert changed and all(path[-1].endswith("kernel") for path in changed)


@pytest.mark.parametrize("name", ["mixture", "ppo"])
def test_a_resumed_run_equals_an_undisturbed_run(runs, name):
    """Job `mixture` samples with stale weights and needs the reference; `ppo` has a critic."""
    assert_equal(trained(runs / f"{name} in halves"), trained(runs / name))
    for kind in (name, f"{name} in halves"):
        assert RunFolder(runs / kind).trajectory_steps() == [1, 2]
    halves, whole = (
        [record["tokens"] for record in RunFolder(runs / kind).read_trajectories(2)]
        for kind in (f"{name} in halves", name)
    )
    assert halves == whole


def test_merged_and_unmerged_decoding_sample_the_same_tokens_at_first(runs):
    merged, unmerged = (
        [record["tokens"] for record in RunFolder(runs / kind).read_trajectories(1)]
        for kind in ("mixture", "mixture unmerged")
    )
    assert merged == unmerged


def test_a_merged_export_has_the_weights_of_the_run(runs, tmp_path):
    export(str(runs / "ppo"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    assert_equal(load(tmp_path / "out"), load(runs / "ppo"))


def test_an_export_of_adapters_has_the_weights_of_the_run(runs, tmp_path):
    out = str(tmp_path / "out")
    export_adapters(str(runs / "ppo"), out, dtype="float32", overwrite=False)
    assert_equal(load(out), load(runs / "ppo"))
    assert sources.resolve(out).tokenizer_path == tmp_path / "out"
    with pytest.raises(FileExistsError, match="--overwrite"):
        export_adapters(str(runs / "ppo"), out, dtype="float32", overwrite=False)
    export(out, str(tmp_path / "merged"), dtype="float32", overwrite=False)
    assert_equal(load(tmp_path / "merged"), load(runs / "ppo"))
    export_adapters(str(runs / "ppo"), out, dtype="bfloat16", overwrite=True)


def test_a_changed_base_is_refused(runs, base, tmp_path):
    weights = base / "model.safetensors"
    saved = weights.read_bytes()
    try:
        weights.write_bytes(saved[:-4] + b"\0\0\0\0")
        with pytest.raises(ValueError, match="put the old weights back"):
            load(runs / "ppo")
    finally:
        weights.write_bytes(saved)


def test_only_runs_with_adapters_export_adapters(base, tmp_path):
    with pytest.raises(ValueError, match="no run with config.model.lora"):
        export_adapters(str(base), str(tmp_path / "out"), dtype="float32", overwrite=False)
