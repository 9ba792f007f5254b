"""Random models of the four families, compared with an installed transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from agentgym_jax.models import sources
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import load_hf, save_hf

ATOL = 1e-4  # tolerance for float32 sums in another order; logits have a size of about 10
COMMON = dict(
    vocab_size=200,
    num_attention_heads=6,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=4,
    max_position_embeddings=512,
    initializer_range=0.2,
)
# A delta net normalises its outputs. Where one is close to 0, this multiplies rounding errors of single
# tokens. Against float64, transformers has errors up to 8e-4 and a median of 6e-6 in these networks, and
# we have 5e-4 and 2e-6. The median is therefore strict, and the largest error is not.
HYBRID_MEDIAN, HYBRID_MAX = 2e-5, 5e-3
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
QWEN3_5 = COMMON | dict(
    num_hidden_layers=8,
    num_key_value_heads=2,
    head_dim=24,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=16,
    linear_value_head_dim=12,
    rope_parameters={
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 1],
    },
)
CONFIGS = {
    "qwen2-tied": transformers.Qwen2Config(
        **COMMON, num_key_value_heads=2, tie_word_embeddings=True
    ),
    "qwen2-untied": transformers.Qwen2Config(
        **COMMON, num_key_value_heads=3, tie_word_embeddings=False
    ),
    "qwen3": transformers.Qwen3Config(
        **COMMON, num_key_value_heads=1, head_dim=24, tie_word_embeddings=True
    ),
    "llama": transformers.LlamaConfig(
        **COMMON, num_key_value_heads=6, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    ),
    "llama3-rope": transformers.LlamaConfig(
        **COMMON, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE
    ),
    "linear-rope": transformers.LlamaConfig(
        **COMMON,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    ),
    "qwen3.5": transformers.Qwen3_5TextConfig(**QWEN3_5, tie_word_embeddings=True),
    "qwen3.5-untied": transformers.Qwen3_5TextConfig(
        **QWEN3_5 | dict(linear_conv_kernel_dim=3), full_attention_interval=2
    ),
}
VISION = dict(
    depth=1,
    hidden_size=16,
    intermediate_size=16,
    num_heads=2,
    out_hidden_size=48,
    num_position_embeddings=16,
)


def make_reference(name):
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(
        CONFIGS[name], attn_implementation="eager"
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def reference_logits(model, tokens_BT):
    with torch.no_grad():
        return model(torch.asarray(np.array(tokens_BT))).logits.numpy()


def our_logits(policy, params, tokens_BT):
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    hidden_BTD = policy.hidden(params, tokens_BT, positions_BT, jnp.ones_like(tokens_BT))
    return np.asarray(policy.logits(params, hidden_BTD))


def assert_equal_logits(policy, found_BTV, expected_BTV, rtol=1e-7):
    assert np.std(expected_BTV) > 1
    if policy.config.hybrid is None:
        np.testing.assert_allclose(found_BTV, expected_BTV, atol=ATOL, rtol=rtol)
        return
    error_BTV = np.abs(found_BTV - expected_BTV)
    assert np.median(error_BTV) < HYBRID_MEDIAN and np.max(error_BTV) < HYBRID_MAX


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_those_of_transformers(name, tmp_path):
    reference = make_reference(name)
    reference.save_pretrained(tmp_path)
    policy = Policy(sources.resolve(str(tmp_path)).config)
    params = load_hf(tmp_path, policy)
    tokens_BT = jax.random.randint(jax.random.key(0), (3, 140), 0, 200)
    expected_BTV = reference_logits(reference, tokens_BT)
    assert_equal_logits(policy, our_logits(policy, params, tokens_BT), expected_BTV)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_export_loaded_by_transformers_gives_the_same_logits(name, tmp_path):
    make_reference(name).save_pretrained(tmp_path / "in")
    policy = Policy(sources.resolve(str(tmp_path / "in")).config)
    params = load_hf(tmp_path / "in", policy)
    # so that exported weights and loaded weights differ
    params = jax.tree.map(lambda x: x + 0.1, params)
    save_hf(params, policy.config, tmp_path / "out", dtype="float32", max_shard_bytes=100_000)
    exported = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", dtype=torch.float32, attn_implementation="eager"
    )
    assert exported.config.model_type == CONFIGS[name].model_type
    tokens_BT = jax.random.randint(jax.random.key(1), (2, 90), 0, 200)
    assert_equal_logits(
        policy,
        our_logits(policy, params, tokens_BT),
        reference_logits(exported.eval(), tokens_BT),
        rtol=1e-5,
    )


def test_the_text_part_of_a_qwen3_5_with_a_vision_tower_equals_that_of_transformers(tmp_path):
    torch.manual_seed(0)
    config = transformers.Qwen3_5Config(
        text_config=QWEN3_5, vision_config=VISION, tie_word_embeddings=True
    )
    reference = transformers.Qwen3_5ForConditionalGeneration(config).eval()
    reference.save_pretrained(tmp_path)
    names = safetensors.torch.load_file(tmp_path / "model.safetensors").keys()
    assert any(name.startswith("model.visual.") for name in names)
    assert any(name.startswith("model.language_model.") for name in names)
    policy = Policy(sources.resolve(str(tmp_path)).config)
    params = load_hf(tmp_path, policy)
    tokens_BT = jax.random.randint(jax.random.key(0), (2, 70), 0, 200)
    expected_BTV = reference_logits(reference, tokens_BT)
    assert_equal_logits(policy, our_logits(policy, params, tokens_BT), expected_BTV)
