"""Shape of a decoder, presets, and conversion from and to Hugging Face's `config.json`.

One config covers Qwen2/Qwen2.5 (bias on q, k, v), Qwen3 (norms on q and k) and Llama 3 (neither).
With a section `hybrid` it is the text part of a dense Qwen3.5.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentgym_jax.checks import limits
from agentgym_jax.checks.limits import OneOf, Range

# Far above the sizes of released models; the upper limits refuse a damaged file or a slip of the
# keyboard before shapes of that size are built.
Size = Annotated[int, Range(1, 2**20)]
Layers = Annotated[int, Range(1, 2**10)]
Vocabulary = Annotated[int, Range(1, 2**22)]
Positive = Annotated[float, Range(above=0)]


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

    kind: Annotated[str, OneOf(("linear", "llama3"))]
    factor: Positive
    low_frequency_factor: Positive = 1.0
    high_frequency_factor: Positive = 4.0
    original_max_position: Annotated[int, Range(1, unit="tokens")] = 8192

    def __post_init__(self):
        _check_fields(self, "rope_scaling")
        if self.low_frequency_factor >= self.high_frequency_factor:
            raise ValueError(
                f"rope_scaling: low_frequency_factor={self.low_frequency_factor} is not below "
                f"high_frequency_factor={self.high_frequency_factor}"
            )


@dataclasses.dataclass(frozen=True)
class HybridConfig:
    """Parts that only Qwen3.5 has: gated delta nets between layers of gated full attention.

    Attributes:
      interval: Layers per group: the last layer of a group has full attention, the others are gated
        delta nets (delta_net.py).
      key_heads: Query and key heads of a delta net.
      value_heads: Value heads of a delta net (N); a multiple of `key_heads`.
      key_size: Width of a query or key head (H).
      value_size: Width of a value head (P).
      rotary_size: Elements of an attention head with a rotary embedding.
      conv_size: Tokens that the convolution of a delta net sees (W).
    """

    interval: Size
    key_heads: Size
    value_heads: Size
    key_size: Size
    value_size: Size
    rotary_size: Size
    conv_size: Size = 4

    def __post_init__(self):
        _check_fields(self, "hybrid")
        if min(self.interval, self.conv_size) < 2 or self.value_heads % self.key_heads:
            raise ValueError(
                f"{self}: interval and conv_size must be at least 2, and value_heads a multiple of "
                "key_heads"
            )

    @property
    def num_channels(self) -> int:
        """Channels of the convolution (C): queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_size + self.value_heads * self.value_size


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
      rope_scaling: Scaling of the rotary frequencies, a RopeScaling or its fields; None for plain
        rotary embeddings.
      norm_eps: Constant added to the mean square in every RMS norm.
      qkv_bias: True if the q, k and v projections have a bias.
      qk_norm: True if q and k have an RMS norm over the width of each head.
      tie_embeddings: True if the transposed embedding is the output head.
      max_position: Maximum sequence length of the released model, in tokens.
      hybrid: Parts of Qwen3.5, a HybridConfig or its fields; None for other families. A hybrid has
        `qk_norm`, no `qkv_bias`, and norms that multiply by 1 + scale.
    """

    vocab_size: Vocabulary
    hidden_size: Size
    intermediate_size: Size
    num_layers: Layers
    num_heads: Size
    num_kv_heads: Size
    head_size: Size
    rope_theta: Positive = 1e6
    rope_scaling: RopeScaling | None = None
    norm_eps: Positive = 1e-6
    qkv_bias: bool = True
    qk_norm: bool = False
    tie_embeddings: bool = True
    max_position: Annotated[int, Range(1, unit="tokens")] = 32768
    hybrid: HybridConfig | None = None

    def __post_init__(self):
        if isinstance(self.hybrid, Mapping):
            object.__setattr__(self, "hybrid", HybridConfig(**self.hybrid))
        if isinstance(self.rope_scaling, Mapping):
            object.__setattr__(self, "rope_scaling", RopeScaling(**self.rope_scaling))
        if self.hybrid is not None:
            self._check_hybrid(self.hybrid)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"DecoderConfig: num_heads={self.num_heads} is not a multiple of "
                f"num_kv_heads={self.num_kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(
                f"DecoderConfig: head_size={self.head_size} is odd; rotary embeddings turn pairs"
            )

    def _check_hybrid(self, hybrid: HybridConfig) -> None:
        if self.qkv_bias or not self.qk_norm or self.rope_scaling is not None:
            raise ValueError(
                "DecoderConfig: a hybrid needs qkv_bias=False, qk_norm=True and no rope_scaling"
            )
        if self.num_layers % hybrid.interval:
            raise ValueError(
                f"DecoderConfig: num_layers={self.num_layers} is not a multiple of "
                f"hybrid.interval={hybrid.interval}"
            )
        if hybrid.rotary_size % 2 or hybrid.rotary_size > self.head_size:
            raise ValueError(
                f"DecoderConfig: hybrid.rotary_size={hybrid.rotary_size} is odd or above "
                f"head_size={self.head_size}"
            )

    @property
    def num_full_layers(self) -> int:
        """Layers with full attention, which have keys and values."""
        return self.num_layers // (1 if self.hybrid is None else self.hybrid.interval)

    @property
    def rotary_size(self) -> int:
        """Elements of a head with a rotary embedding."""
        return self.head_size if self.hybrid is None else self.hybrid.rotary_size


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
    "num_key_value_heads": None,  # num_attention_heads, also for an explicit null
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "layer_types": None,  # full attention in all layers
    "quantization_config": None,
    "compression_config": None,
    "is_causal": True,
}
_FAMILY_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "llama": {"max_position_embeddings": 2048},
    "qwen3_5_text": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "partial_rotary_factor": 0.25,
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    },
}
# Keys that must have their default, because the decoder does not support other values.
_SAME_KEYS = (
    "hidden_act",
    "use_sliding_window",
    "mlp_bias",
    "quantization_config",
    "compression_config",
    "is_causal",
)
_FIXED_KEYS: Mapping[str, Sequence[str]] = {
    "qwen2": (*_SAME_KEYS, "attention_bias", "partial_rotary_factor"),
    "qwen3": (*_SAME_KEYS, "attention_bias", "partial_rotary_factor"),
    "llama": (*_SAME_KEYS, "partial_rotary_factor"),
    "qwen3_5_text": (*_SAME_KEYS, "attention_bias", "attn_output_gate"),
}
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
# Names of sizes in a HybridConfig and in a config.json of Qwen3.5.
_HYBRID_SIZES = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_size": "linear_key_head_dim",
    "value_size": "linear_value_head_dim",
    "conv_size": "linear_conv_kernel_dim",
}
# Limits of the keys that are read from a config.json.
_FIELDS: Mapping[str, Any] = {
    **{key: DecoderConfig.__annotations__[field] for field, key in _SIZES.items()},
    **dict.fromkeys((*_HYBRID_SIZES.values(), "full_attention_interval"), Size),
    "num_key_value_heads": Size | None,
    "head_dim": Size | None,
    "rope_theta": Positive,
    "rope_scaling": Mapping[str, Any] | None,
    "rope_parameters": Mapping[str, Any] | None,
    "rms_norm_eps": Positive,
    "max_position_embeddings": DecoderConfig.__annotations__["max_position"],
    "tie_word_embeddings": bool,
    "attention_bias": bool,
    "partial_rotary_factor": Annotated[float, Range(above=0, at_most=1)],
    "layer_types": Sequence[str] | None,
}
# Limits of the keys of a section with the rotary embedding.
_ROPE_FIELDS: Mapping[str, Any] = {
    "rope_theta": Positive,
    "partial_rotary_factor": _FIELDS["partial_rotary_factor"],
    "factor": Positive,
    **{key: RopeScaling.__annotations__[field] for field, key in _LLAMA3_SCALING.items()},
}
_LAYER_TYPES = ("linear_attention", "full_attention")


def from_hf_config(hf: Mapping[str, Any], place: Any = "config.json") -> DecoderConfig:
    """Returns the DecoderConfig of a Hugging Face `config.json` of transformers 4 or 5.

    Of a Qwen3.5 with a vision tower (`qwen3_5`), it is the config of the text part.

    Raises:
      ValueError: A key is missing or invalid, or its value is not supported. The message begins
        with `place`, the path of the file.
    """
    family = hf.get("model_type")
    if family == "qwen3_5" and "text_config" in hf:
        limits.check_field(place, "text_config", hf["text_config"], Mapping[str, Any])
        outer = ("tie_word_embeddings", "quantization_config", "compression_config")
        shared = {key: hf[key] for key in outer if key in hf}
        text = {**hf["text_config"], **shared, "model_type": "qwen3_5_text"}
        return from_hf_config(text, place)
    if not isinstance(family, str) or family not in _FAMILY_DEFAULTS:
        raise ValueError(
            f"{place}: model_type is {limits.shorten(family)}; supported: qwen3_5, "
            f"{', '.join(_FAMILY_DEFAULTS)}"
        )
    defaults = {**_DEFAULTS, **_FAMILY_DEFAULTS[family]}
    full = {**defaults, **hf}
    missing = [key for key in _SIZES.values() if key not in full]
    if missing:
        raise ValueError(f"{place}: a {family} model lacks {', '.join(missing)}")
    for key in _FIXED_KEYS[family]:
        if full[key] != defaults[key]:
            raise ValueError(
                f"{place}: {key}={limits.shorten(full[key])} of a {family} model is not supported, "
                f"only {key}={defaults[key]!r}"
            )
    for key, annotation in _FIELDS.items():
        if key in full:
            limits.check_field(place, key, full[key], annotation)
    if full["num_key_value_heads"] is None:
        full["num_key_value_heads"] = full["num_attention_heads"]
    if full["head_dim"] is None:
        full["head_dim"] = full["hidden_size"] // full["num_attention_heads"]
        limits.check_field(place, "head_dim", full["head_dim"], Size)
    if family != "qwen3_5_text" and set(full["layer_types"] or ()) - {_LAYER_TYPES[1]}:
        raise ValueError(
            f"{place}: layer_types={limits.shorten(full['layer_types'])} of a {family} model is not "
            f"supported, only {_LAYER_TYPES[1]} in all layers"
        )
    try:
        theta, scaling = _rope(full)
        return DecoderConfig(
            **{field: full[key] for field, key in _SIZES.items()},
            rope_theta=theta,
            rope_scaling=scaling,
            norm_eps=float(full["rms_norm_eps"]),
            qkv_bias=family == "qwen2" or full["attention_bias"],
            qk_norm=family in ("qwen3", "qwen3_5_text"),
            tie_embeddings=full["tie_word_embeddings"],
            max_position=full["max_position_embeddings"],
            hybrid=_hybrid(full) if family == "qwen3_5_text" else None,
        )
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _hybrid(full: Mapping[str, Any]) -> HybridConfig:
    """Returns the parts of Qwen3.5 from the keys of its text config."""
    layers, interval = full["num_hidden_layers"], full["full_attention_interval"]
    if full["layer_types"]:
        found = list(full["layer_types"])
        interval = found.index("full_attention") + 1 if "full_attention" in found else 0
        group = [_LAYER_TYPES[0]] * (interval - 1) + [_LAYER_TYPES[1]]
        if interval < 2 or found != (group * layers)[:layers]:
            raise ValueError(
                "layer_types must repeat a group of linear_attention layers that ends with one "
                f"full_attention layer; found {limits.shorten(found)}"
            )
    rope = {"partial_rotary_factor": full["partial_rotary_factor"]}
    rope.update(full["rope_parameters"] or full["rope_scaling"] or {})
    return HybridConfig(
        interval=interval,
        rotary_size=round(full["head_dim"] * rope["partial_rotary_factor"]),
        **{field: full[key] for field, key in _HYBRID_SIZES.items()},
    )


def _rope(full: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Returns base and scaling of the rotary embedding from the keys of transformers 4 or 5."""
    rope = {"rope_theta": full["rope_theta"], "partial_rotary_factor": 1.0}
    for name in ("rope_scaling", "rope_parameters"):
        for key, value in (full[name] or {}).items():
            if isinstance(value, Mapping):  # one section for each type of layers
                raise ValueError(f"{name}: {key}={limits.shorten(value)} is not supported")
            if key in _ROPE_FIELDS:
                limits.check_field(name, key, value, _ROPE_FIELDS[key])
            rope[key] = value
    if rope["partial_rotary_factor"] != 1.0 and full["model_type"] != "qwen3_5_text":
        raise ValueError(
            f"partial_rotary_factor={rope['partial_rotary_factor']} is not supported, only 1.0"
        )
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = float(rope["rope_theta"])
    if kind == "default":
        return theta, None
    if kind not in ("linear", "llama3"):
        raise ValueError(
            f"rope scaling {limits.shorten(kind)} is not supported; use default, linear or llama3"
        )
    names = {"factor": "factor"} | (_LLAMA3_SCALING if kind == "llama3" else {})
    missing = [key for key in names.values() if key not in rope]
    if missing:
        raise ValueError(f"rope scaling {kind!r} lacks {', '.join(missing)}")
    return theta, RopeScaling(kind, **{field: rope[key] for field, key in names.items()})


def _check_fields(section: Any, name: str) -> None:
    """Raises ValueError if a field of a dataclass does not fit its annotation."""
    for field, annotation in limits.annotations(type(section)).items():
        limits.check_field(name, field, getattr(section, field), annotation)


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
    if config.hybrid is not None:
        return _to_hf_hybrid(config, config.hybrid)
    family = "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias else "llama"
    if as_llama and family == "qwen2":
        family = "llama"
    hf: dict[str, Any] = {
        "architectures": [f"{family.capitalize()}ForCausalLM"],
        "model_type": family,
        **_common(config),
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
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


def _common(config: DecoderConfig) -> dict[str, Any]:
    """Returns the keys that all families have."""
    return {
        **{key: getattr(config, field) for field, key in _SIZES.items()},
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tie_embeddings,
        "initializer_range": 0.02,
        "attention_dropout": 0.0,
        "use_cache": True,
    }


def _to_hf_hybrid(config: DecoderConfig, hybrid: HybridConfig) -> dict[str, Any]:
    """Returns the `config.json` of the text part of a Qwen3.5, which only transformers 5 knows."""
    group = [_LAYER_TYPES[0]] * (hybrid.interval - 1) + [_LAYER_TYPES[1]]
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        **_common(config),
        "attention_bias": False,
        "attn_output_gate": True,
        "full_attention_interval": hybrid.interval,
        "layer_types": group * (config.num_layers // hybrid.interval),
        **{key: getattr(hybrid, field) for field, key in _HYBRID_SIZES.items()},
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config.rope_theta,
            "partial_rotary_factor": hybrid.rotary_size / config.head_size,
        },
    }
