"""A teacher with another network: its scores, resumed runs, refused teachers."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.learner import stored_weights
from agentgym_jax.models import sources
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests import fast_programs
from tests.builders import decoder_config
from tests.model_files import save_model
from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def make_teacher(folder, tokenizer):
    """Writes a Hugging Face directory with random weights."""
    config = decoder_config(vocab_size=tokenizer.vocab_size, max_position=4096)
    params = Policy(config).init(jax.random.key(7))
    return save_model(folder, params, config, tokenizer=tokenizer)


def run(folder, teacher):
    paths = f"{ROOT}:{ROOT / 'tests/integration'}"
    command = ["-m", "tests.integration.distillation_job", folder, teacher]
    variables = {"PYTHONPATH": paths, **fast_programs.variables()}  # one device
    return run_python(*command, timeout=600, **variables)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("teacher"), byte_tokenizer())


@pytest.fixture(scope="module")
def runs(tmp_path_factory, teacher):
    folder = tmp_path_factory.mktemp("runs")
    done = run(folder, teacher)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_recorded_scores_are_those_of_the_teacher(runs, teacher):
    policy = Policy(decoder_config(vocab_size=byte_tokenizer().vocab_size, max_position=4096))
    params = stored_weights.load(sources.resolve(str(teacher)), policy)
    for record in RunFolder(runs / "whole").read_trajectories(1)[:4]:
        tokens = jnp.asarray([record["tokens"]], jnp.int32)
        positions = jnp.arange(tokens.shape[1])[None]
        hidden = policy.hidden(params, tokens, positions, jnp.ones_like(tokens))
        scores = token_logprobs(policy, params, hidden, tokens, chunk_size=64).logprob_BT[0]
        found = np.array(record["reference_logprobs"])
        is_action = found != 0
        assert is_action.any()
        np.testing.assert_allclose(found[is_action], scores[is_action], atol=1e-4)


def test_a_resumed_run_equals_an_undisturbed_run(runs):
    whole, halves = (
        stored_weights.load(source, Policy(source.config))
        for source in (sources.resolve(str(runs / name)) for name in ("whole", "halves"))
    )
    jax.tree.map(np.testing.assert_array_equal, halves, whole)


def test_a_changed_teacher_is_refused(runs, teacher):
    weights = teacher / "model.safetensors"
    saved = weights.read_bytes()
    try:
        weights.write_bytes(saved[:-4] + b"\0\0\0\0")
        done = run(runs, teacher)
    finally:
        weights.write_bytes(saved)
    assert done.returncode != 0
    assert "put the old weights back" in done.stderr


def test_a_teacher_with_another_vocabulary_is_refused(tmp_path):
    other = byte_tokenizer()
    text = other._json.replace('"content":"<|im_end|>"', '"content":"<|other|>"')
    changed = type(other)(text.replace('"<|im_end|>"', '"<|other|>"'), other._config)
    done = run(tmp_path / "runs", make_teacher(tmp_path, changed))
    assert done.returncode != 0
    assert "its vocabulary differs from the policy's" in done.stderr
    assert not (tmp_path / "runs" / "whole").exists()
