import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentgym_jax.export import export
from agentgym_jax.learner import train_state
from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.models import sources
from agentgym_jax.models.config import to_hf_config
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import load_hf
from agentgym_jax.text.tokenizer import byte_tokenizer, load_tokenizer

GOLDEN = pathlib.Path(__file__).parent / "golden" / "decoder"


def random_params(policy, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), policy.abstract_params()
    )


def make_run_folder(path, steps):
    """What a run leaves behind, as far as an export needs it; step n has weights of seed n."""
    config = sources.resolve(str(GOLDEN / "qwen3")).config
    policy = Policy(config)
    (path / "model").mkdir(parents=True)
    (path / "model" / "config.json").write_text(json.dumps(to_hf_config(config)))
    (path / "config.json").write_text(json.dumps({"job": "rl"}))
    byte_tokenizer().save(path / "tokenizer")
    (path / "checkpoints").mkdir()
    with Checkpoints(path / "checkpoints", max_to_keep=3) as checkpoints:
        for step in steps:
            params = random_params(policy, step)
            checkpoints.save(step, train_state.create(policy, optax.sgd(0.1), params), {})
    return policy


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
    assert config["eos_token_id"] == tokenizer.special_id("<|im_end|>")
    assert config["torch_dtype"] == "float32"


def test_a_run_folder_without_a_complete_checkpoint_is_no_model_yet(tmp_path):
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


def test_an_existing_directory_is_refused_before_the_model_is_looked_for(tmp_path):
    shutil.copytree(GOLDEN / "qwen2", tmp_path / "out")
    with pytest.raises(FileExistsError, match="--overwrite"):
        export("no/such-model", str(tmp_path / "out"), dtype="float32", overwrite=False)


def run_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "agentgym_jax.export", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=False,
    )


def test_the_command_writes_bfloat16_by_default(tmp_path):
    done = run_command(f"--model={GOLDEN / 'llama'}", f"--out={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_the_command_ends_with_one_line_that_says_what_is_wrong(tmp_path):
    done = run_command("--model=qwen9-1b", f"--out={tmp_path / 'out'}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("export: --model=qwen9-1b is no existing path")
    assert "Traceback" not in done.stderr
