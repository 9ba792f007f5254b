"""Shape of a decoder, presets, and conversion from and to Hugging Face's `config.json`.

One config covers Qwen2/Qwen2.5 (bias on q, k, v), Qwen3 (norms on q and k) and Llama 3 (neither).
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from agentgym_jax.limits import Range

Size = Annotated[int, Range(1)]


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Scaling of the rotary frequencies for contexts longer than those of pre-training.

    Attributes:
      kind: `linear` divides every frequency by `factor`; `llama3` divides the low frequencies,
        keeps the high ones and interpolates between the two (Llama 3.1, arXiv:2407.21783).
      factor: Ratio of the new context length to that of pre-training.
      low_frequency_factor: For `llama3`: wavelengths above original_max_position /
        low_frequency_factor are low frequencies.
      high_frequency_factor: For `llama3`: wavelengths below original_max_position /
        high_frequency_factor are high frequencies.
      original_max_position: For `llama3`: context length of pre-training, in tokens.
    """

    kind: str
    factor: float
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_position: int = 8192

    def __post_init__(self):
        if self.kind not in ("linear", "llama3"):
            raise ValueError(
                f"RopeScaling.kind is {self.kind!r}; known kinds are 'linear' and 'llama3'"
            )


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shape of a decoder; determines its parameter tree and the function that it computes.

    Attributes:
      vocab_size: Rows of the embedding (V).
      hidden_size: Width of the residual stream (D).
      intermediate_size: Width of the MLP (F).
      num_layers: Number of layers (L).
      num_heads: Query heads (N); a multiple of `num_kv_heads`.
      num_kv_heads: Key and value heads (K).
      head_size: Width of a head (H). It is even; N * H and D may differ.
      rope_theta: Base of the rotary frequencies.
      rope_scaling: Scaling of the rotary frequencies; None for plain rotary embeddings.
      norm_eps: Constant added to the mean square in every RMS norm.
      qkv_bias: True if the q, k and v projections have a bias.
      qk_norm: True if q and k have an RMS norm over the width of each head.
      tie_embeddings: True if the transposed embedding is the output head.
      max_position: Maximum sequence length of the released model, in tokens.
    """

    vocab_size: int
    hidden_size: Size
    intermediate_size: Size
    num_layers: Size
    num_heads: Size
    num_kv_heads: Size
    head_size: Size
    rope_theta: Annotated[float, Range(above=0)] = 1e6
    rope_scaling: RopeScaling | None = None
    norm_eps: Annotated[float, Range(above=0)] = 1e-6
    qkv_bias: bool = True
    qk_norm: bool = False
    tie_embeddings: bool = True
    max_position: Annotated[int, Range(1, unit="tokens")] = 32768

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"DecoderConfig: num_heads={self.num_heads} is not a multiple of "
                f"num_kv_heads={self.num_kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(
                f"DecoderConfig: head_size={self.head_size} is odd; rotary embeddings turn pairs"
            )


_QWEN3: Mapping[str, Any] = dict(qkv_bias=False, qk_norm=True, max_position=40960)
# Sizes from the released config.json files of the instruct models.
PRESETS: Mapping[str, DecoderConfig] = {
    "qwen2.5-0.5b": DecoderConfig(151936, 896, 4864, 24, 14, 2, 64),
    "qwen2.5-1.5b": DecoderConfig(151936, 1536, 8960, 28, 12, 2, 128),
    "qwen2.5-3b": DecoderConfig(151936, 2048, 11008, 36, 16, 2, 128),
    "qwen2.5-7b": DecoderConfig(152064, 3584, 18944, 28, 28, 4, 128, tie_embeddings=False),
    "qwen2.5-14b": DecoderConfig(152064, 5120, 13824, 48, 40, 8, 128, tie_embeddings=False),
    "qwen2.5-32b": DecoderConfig(152064, 5120, 27648, 64, 40, 8, 128, tie_embeddings=False),
    "qwen2.5-72b": DecoderConfig(152064, 8192, 29568, 80, 64, 8, 128, tie_embeddings=False),
    "qwen3-0.6b": DecoderConfig(151936, 1024, 3072, 28, 16, 8, 128, **_QWEN3),
    "qwen3-1.7b": DecoderConfig(151936, 2048, 6144, 28, 16, 8, 128, **_QWEN3),
    "qwen3-4b": DecoderConfig(151936, 2560, 9728, 36, 32, 8, 128, **_QWEN3),
    "qwen3-8b": DecoderConfig(151936, 4096, 12288, 36, 32, 8, 128, tie_embeddings=False, **_QWEN3),
}

# Hugging Face's defaults for keys that are missing in a config.json.
_DEFAULTS: Mapping[str, Any] = {
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "rope_parameters": None,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "head_dim": None,  # hidden_size // num_attention_heads
    "num_key_value_heads": None,  # num_attention_heads
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
}
_FAMILY_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "llama": {"max_position_embeddings": 2048},
}
# Keys that must have their default, because the decoder does not support other values.
_FIXED_KEYS = ("hidden_act", "use_sliding_window", "mlp_bias", "partial_rotary_factor")
# Names of sizes in a DecoderConfig and in a config.json. In a config.json, sizes without a default
# are required.
_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
}
# Names of the fields of `llama3` scaling in a RopeScaling and in a config.json.
_LLAMA3_SCALING = {
    "low_frequency_factor": "low_freq_factor",
    "high_frequency_factor": "high_freq_factor",
    "original_max_position": "original_max_position_embeddings",
}


def from_hf_config(hf: Mapping[str, Any]) -> DecoderConfig:
    """Returns the DecoderConfig of a Hugging Face `config.json` of transformers 4 or 5."""
    family = hf.get("model_type")
    if family not in _FAMILY_DEFAULTS:
        raise ValueError(
            f"config.json: model_type is {family!r}; supported: {', '.join(_FAMILY_DEFAULTS)}"
        )
    full = {**_DEFAULTS, **_FAMILY_DEFAULTS[family], **hf}
    missing = [key for key in _SIZES.values() if key not in full]
    if missing:
        raise ValueError(f"config.json of a {family} model lacks {', '.join(missing)}")
    for key in _FIXED_KEYS if family == "llama" else (*_FIXED_KEYS, "attention_bias"):
        if full[key] != _DEFAULTS[key]:
            raise ValueError(
                f"config.json of a {family} model has {key}={full[key]!r}; "
                f"only {key}={_DEFAULTS[key]!r} is supported"
            )
    theta, scaling = _rope(full)
    sizes = {field: full[key] for field, key in _SIZES.items()}
    if sizes["num_kv_heads"] is None:
        sizes["num_kv_heads"] = sizes["num_heads"]
    if sizes["head_size"] is None:
        sizes["head_size"] = sizes["hidden_size"] // sizes["num_heads"]
    return DecoderConfig(
        **sizes,
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=float(full["rms_norm_eps"]),
        qkv_bias=family == "qwen2" or full["attention_bias"],
        qk_norm=family == "qwen3",
        tie_embeddings=full["tie_word_embeddings"],
        max_position=full["max_position_embeddings"],
    )


def _rope(full: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Returns base and scaling of the rotary embedding from the keys of transformers 4 or 5."""
    rope = {"rope_theta": full["rope_theta"], "rope_type": "default"}
    for section in (full["rope_scaling"], full["rope_parameters"]):
        rope.update(section or {})
    kind = rope["type"] if "type" in rope else rope["rope_type"]
    theta = float(rope["rope_theta"])
    if kind == "default":
        return theta, None
    if kind not in ("linear", "llama3"):
        raise ValueError(
            f"config.json: rope scaling {kind!r} is not supported; use default, linear or llama3"
        )
    names = _LLAMA3_SCALING if kind == "llama3" else {}
    options = {field: rope[key] for field, key in names.items()}
    return theta, RopeScaling(kind, float(rope["factor"]), **options)


def to_hf_config(config: DecoderConfig, *, as_llama: bool = False) -> dict[str, Any]:
    """Returns the `config.json` of a decoder; transformers 4 and 5 understand its rotary keys.

    `as_llama` describes a decoder with `qkv_bias` as a Llama with `attention_bias`. Such a Llama
    also has a bias in its output projection; if that bias is zero, both compute the same function.
    """
    if config.qkv_bias and config.qk_norm:
        raise ValueError(
            "no Hugging Face family has both qkv_bias and qk_norm: qwen2 has the bias, "
            "qwen3 the norm, llama neither"
        )
    family = "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias else "llama"
    if as_llama and family == "qwen2":
        family = "llama"
    hf: dict[str, Any] = {
        "architectures": [f"{family.capitalize()}ForCausalLM"],
        "model_type": family,
        **{key: getattr(config, field) for field, key in _SIZES.items()},
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tie_embeddings,
        "initializer_range": 0.02,
        "attention_dropout": 0.0,
        "use_cache": True,
    }
    if family == "llama":
        hf.update(attention_bias=config.qkv_bias, mlp_bias=False)
    else:
        hf.update(use_sliding_window=False)
    if family == "qwen3":
        hf.update(attention_bias=False)
    if scaling := config.rope_scaling:
        names = _LLAMA3_SCALING if scaling.kind == "llama3" else {}
        options = {key: getattr(scaling, field) for field, key in names.items()}
        hf["rope_scaling"] = {"rope_type": scaling.kind, "factor": scaling.factor, **options}
    return hf
