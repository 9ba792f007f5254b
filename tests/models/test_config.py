import pytest
import transformers

from agentgym_jax.models.config import (
    PRESETS,
    RopeScaling,
    from_hf_config,
    to_hf_config,
)
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config, decoder_families

SMALL = decoder_config(head_size=16)
FAMILIES = decoder_families(SMALL)


@pytest.mark.parametrize("config", [*FAMILIES.values(), *PRESETS.values()])
def test_a_config_round_trips_through_the_hugging_face_format(config):
    assert from_hf_config(to_hf_config(config)) == config


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_our_config_and_we_read_theirs(family):
    """Checks both directions; the configs of transformers 5 contain `rope_parameters`."""
    config = FAMILIES[family]
    theirs = transformers.AutoConfig.for_model(**to_hf_config(config))
    assert theirs.model_type == family
    assert from_hf_config(theirs.to_dict()) == config


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "qwen3_5_text"])
def test_missing_keys_have_the_defaults_of_transformers(family):
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    sizes = {**dict.fromkeys(names, 128), "num_attention_heads": 64}
    theirs = transformers.AutoConfig.for_model(family, **sizes)
    assert from_hf_config({"model_type": family, **sizes}) == from_hf_config(theirs.to_dict())


def test_the_old_spelling_of_linear_rope_scaling_is_read():
    hf = to_hf_config(FAMILIES["llama"]) | {"rope_scaling": {"type": "linear", "factor": 4}}
    assert from_hf_config(hf).rope_scaling == RopeScaling("linear", 4.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"use_sliding_window": True}, "use_sliding_window=True"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0}}},
            "rope_parameters: full_attention=",
        ),
    ],
)
def test_an_unsupported_architecture_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        from_hf_config(to_hf_config(SMALL) | change)


def test_the_error_for_missing_keys_names_all_of_them():
    with pytest.raises(ValueError, match="lacks vocab_size, hidden_size, intermediate_size"):
        from_hf_config({"model_type": "qwen2"})


@pytest.mark.parametrize(
    ("preset", "billions"),
    [
        ("qwen2.5-0.5b", 0.494),
        ("qwen2.5-1.5b", 1.544),
        ("qwen2.5-3b", 3.09),
        ("qwen2.5-7b", 7.62),
        ("qwen2.5-14b", 14.77),
        ("qwen2.5-32b", 32.76),
        ("qwen2.5-72b", 72.71),
        ("qwen3-0.6b", 0.596),
        ("qwen3-8b", 8.19),
    ],
)
def test_presets_have_the_published_number_of_parameters(preset, billions):
    assert Policy(PRESETS[preset]).num_parameters / 1e9 == pytest.approx(billions, rel=2e-3)
