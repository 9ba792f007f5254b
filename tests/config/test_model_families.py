"""Features that a model family lacks are refused before a run folder exists."""

import pytest

from agentgym_jax.config.model import ModelSettings, build_layouts, is_hybrid, resolve_source
from agentgym_jax.config.sections import ConfigError

ARCHITECTURE = dict(
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    qkv_bias=False,
    qk_norm=True,
    hybrid=dict(interval=2, key_heads=1, value_heads=2, key_size=4, value_size=4, rotary_size=4),
)
LORA = dict(rank=2, alpha=4.0, targets=("q",), decode="merged")


def settings(**changes):
    options = dict(source="random", dtype="float32", decode_dtype="float32", remat="none")
    return ModelSettings(**options | dict(architecture=ARCHITECTURE) | changes)


def test_a_qwen3_5_is_not_trained_with_adapters():
    assert resolve_source(settings()) is None
    with pytest.raises(ConfigError, match=r"config\.model\.lora: a Qwen3\.5"):
        resolve_source(settings(lora=LORA))


def test_a_qwen3_5_does_not_run_on_several_devices():
    mesh = dict(data=-1, fsdp=1, tensor=1, decode_tensor=0)
    assert is_hybrid(settings(), None)
    assert build_layouts(mesh)[0] is not None
    with pytest.raises(ConfigError, match="runs on one device, but there are 8"):
        build_layouts(mesh, is_hybrid=True)


def test_the_error_for_an_invalid_hybrid_names_the_section():
    wrong = ARCHITECTURE | dict(hybrid=ARCHITECTURE["hybrid"] | dict(value_heads=3, key_heads=2))
    with pytest.raises(ConfigError, match=r"config\.model\.architecture: .*multiple of key_heads"):
        settings(architecture=wrong)


def test_a_part_of_an_architecture_that_is_no_section_is_refused():
    with pytest.raises(ConfigError, match="hybrid=5: expected a section or None"):
        settings(architecture=ARCHITECTURE | dict(hybrid=5))
