"""Adapters compared with the library PEFT: hidden states, gradients, directories in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch
import transformers

from agentgym_jax.models import peft_files
from agentgym_jax.models.lora import TARGETS, Adapters, merge
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.models.weights import save_hf
from tests.builders import decoder_config, decoder_families

FAMILIES = decoder_families(decoder_config(max_position=64))
TOKENS = np.random.default_rng(0).integers(0, 101, (2, 12))


@pytest.fixture(params=FAMILIES)
def made(request, tmp_path):
    """Returns a policy, its base weights, adapters with their weights, and PEFT's model of them."""
    config = FAMILIES[request.param]
    policy = Policy(config)
    base = policy.init(jax.random.key(0))
    save_hf(base, config, tmp_path / "base", dtype="float32")
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), 3, 6.0, TARGETS)
    keys = jax.random.split(jax.random.key(1))
    trained = jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(keys[0], x.shape), adapters.init(keys[1])
    )
    (tmp_path / "peft").mkdir()
    peft_files.save(
        tmp_path / "peft", adapters, trained, base=str(tmp_path / "base"), dtype="float32"
    )
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model = peft.PeftModel.from_pretrained(loaded, tmp_path / "peft", is_trainable=True)
    return policy, base, adapters, trained, model


def logprobs(policy, params):
    positions = jnp.tile(jnp.arange(12), (2, 1))
    tokens = jnp.asarray(TOKENS, jnp.int32)
    hidden = policy.hidden(params, tokens, positions, jnp.ones_like(tokens))
    return token_logprobs(policy, params, hidden, tokens, chunk_size=8).logprob_BT[:, 1:]


def peft_logprobs(model):
    tokens = torch.from_numpy(TOKENS)
    logits = model(input_ids=tokens).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None])[..., 0]


def test_log_probabilities_are_those_of_peft(made):
    policy, base, adapters, trained, model = made
    found = logprobs(policy, adapters.attach(base, trained))
    np.testing.assert_allclose(found, peft_logprobs(model).detach().numpy(), atol=2e-5)
    assert np.abs(found - logprobs(policy, base)).max() > 0.01


def test_gradients_are_those_of_peft(made, tmp_path):
    policy, base, adapters, trained, model = made
    grads = jax.grad(lambda t: logprobs(policy, adapters.attach(base, t)).sum())(trained)
    peft_logprobs(model).sum().backward()
    (tmp_path / "grads").mkdir()
    peft_files.save(tmp_path / "grads", adapters, grads, base="x", dtype="float32")
    found = peft_files.safetensors.numpy.load_file(tmp_path / "grads" / peft_files.WEIGHTS_FILE)
    expected = {
        name.replace(".default", ""): parameter.grad.numpy()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-3, atol=2e-4, err_msg=name)


def test_a_directory_written_by_peft_loads(made, tmp_path):
    policy, base, adapters, trained, model = made
    model.save_pretrained(tmp_path / "by_peft")
    found = peft_files.load(tmp_path / "by_peft", policy)
    jax.tree.map(np.testing.assert_array_equal, found.params, trained)
    assert found.adapters.scale == adapters.scale


def test_merged_weights_are_those_of_peft(made):
    policy, base, adapters, trained, model = made
    merged = model.merge_and_unload().state_dict()
    found = merge(adapters.attach(base, trained))["layers"]["mlp"]["down_kernel"][1]
    expected = merged["model.layers.1.mlp.down_proj.weight"].numpy()
    np.testing.assert_allclose(found.T, expected, atol=1e-6)
