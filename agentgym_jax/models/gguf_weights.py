"""`.gguf` files: configuration from their metadata, tensors dequantised one at a time.

The quantised blocks are decoded by the `gguf` package. Names and axes are translated to Hugging
Face's, so that `weights.assemble` builds the parameters of both kinds of file.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize

from agentgym_jax.models.config import DecoderConfig, from_hf_config
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.models.weights import assemble
from agentgym_jax.sharding import Layout
from agentgym_jax.text.gguf_metadata import read_head

ARCHITECTURES = ("qwen2", "qwen3", "llama")

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_TOP_NAMES = {
    _EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    _HEAD: "lm_head.weight",
}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"  # not a weight: llama.cpp's form of the llama3 rope scaling
# Rope scaling that every released Llama 3.1, 3.2 and 3.3 shares; only the factor differs.
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_DEFAULT_ROPE_THETA = 10000.0  # what a file without `rope.freq_base` means
_ROWS_AT_ONCE = 4096
_ROWS_COMPARED = 1024  # of head and embedding, to find out if they are one matrix
_KINDS = {kind.value: kind for kind in gguf.GGMLQuantizationType}
_MANTISSA_BITS = {
    gguf.GGMLQuantizationType.F32: 24.0,
    gguf.GGMLQuantizationType.F16: 11.0,
    gguf.GGMLQuantizationType.BF16: 8.0,
}


class GGUFFile:
    """A `.gguf` file as a source of tensors under Hugging Face names."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self._path = pathlib.Path(path)
        self._fields, self._entries = read_head(self._path)
        self._architecture = self._find_architecture()
        self._check_length()
        if _EMBEDDING not in self._entries:
            raise ValueError(f"{self._path} has no tensor {_EMBEDDING}: it holds no decoder")
        self._names = {
            _hugging_face_name(name): name for name in self._entries if name != _ROPE_FACTORS
        }
        self._is_tied = _HEAD not in self._names.values() or self._head_repeats_embedding()
        if self._is_tied and _HEAD in self._names.values():
            finest = max(_EMBEDDING, _HEAD, key=self._precision)
            self._names[_TOP_NAMES[_EMBEDDING]] = finest
        self.config = from_hf_config(self._hf_config())

    @property
    def location(self) -> str:
        """The file."""
        return str(self._path)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor."""
        return {name: self._entries[stored].shape for name, stored in self._names.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor, dequantised to float32."""
        value = self._dequantised(self._names[name])
        if self._architecture == "llama":
            if ".self_attn.q_proj." in name:
                value = rotary_halves(value, self.config.num_heads)
            elif ".self_attn.k_proj." in name:
                value = rotary_halves(value, self.config.num_kv_heads)
        return value

    def _head_repeats_embedding(self) -> bool:
        """True if the stored output head is the embedding, as far as their rounding lets one see.

        Some quantisers store a tied head as a tensor of its own, in another type.
        """
        if self._entries[_HEAD].shape != self._entries[_EMBEDDING].shape:
            return False
        stride = max(1, self._entries[_HEAD].shape[0] // _ROWS_COMPARED)
        head, embedding = (self._dequantised(name, stride) for name in (_HEAD, _EMBEDDING))
        # A uniform rounding to b bits leaves a relative error of about 2^-b.
        bound = 3.0 * 2.0 ** -min(map(self._precision, (_HEAD, _EMBEDDING)))
        return bool(np.linalg.norm(head - embedding) <= bound * np.linalg.norm(embedding))

    def _precision(self, name: str) -> float:
        """Bits of a number in a tensor, its share of the block's scales included."""
        kind = _KINDS[self._entries[name].kind]
        if kind in _MANTISSA_BITS:
            return _MANTISSA_BITS[kind]
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        return 8 * block_bytes / block_size

    def _dequantised(self, name: str, stride: int = 1) -> np.ndarray:
        """A tensor by its GGUF name; some rows at a time, because decoding takes several copies.

        Args:
          name: of the tensor.
          stride: of the rows, for a sample of them.
        """
        entry = self._entries[name]
        raw = np.memmap(self._path, np.uint8, "r", entry.start, (self._num_bytes(name),))
        raw = raw.reshape(math.prod(entry.shape[:-1]), -1)[::stride]
        value = np.empty((len(raw), entry.shape[-1]), np.float32)
        for start in range(0, len(raw), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            try:
                value[rows] = dequantize(raw[rows], _KINDS[entry.kind])
            except NotImplementedError as error:
                raise ValueError(f"{self._path}, tensor {name}: {error}") from error
        return value if stride > 1 else value.reshape(entry.shape)

    def _num_bytes(self, name: str) -> int:
        entry = self._entries[name]
        if entry.kind not in _KINDS:
            raise ValueError(
                f"{self._path}: tensor {name} has type {entry.kind}, which the installed gguf "
                "package does not know; install a newer one"
            )
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[_KINDS[entry.kind]]
        return math.prod(entry.shape) // block_size * block_bytes

    def _check_length(self) -> None:
        size = self._path.stat().st_size
        needed = max((e.start + self._num_bytes(n) for n, e in self._entries.items()), default=0)
        if size < needed:
            raise ValueError(
                f"{self._path} is cut off: it has {size} bytes, its tensors need {needed}. "
                "Fetch it again."
            )

    def _find_architecture(self) -> str:
        key = "general.architecture"
        found = self._fields[key] if key in self._fields else None
        if found not in ARCHITECTURES:
            raise ValueError(
                f"{self._path}: architecture {found!r} is not supported; "
                f"supported: {', '.join(ARCHITECTURES)}"
            )
        return found

    def _has(self, key: str) -> bool:
        return f"{self._architecture}.{key}" in self._fields

    def _value(self, key: str) -> Any:
        """Metadata of the architecture."""
        if not self._has(key):
            raise ValueError(f"{self._path} lacks the metadata {self._architecture}.{key}")
        return self._fields[f"{self._architecture}.{key}"]

    def _hf_config(self) -> dict[str, Any]:
        """The metadata under the keys of a Hugging Face `config.json`."""
        heads, width = self._value("attention.head_count"), self._value("embedding_length")
        head_size = width // heads
        if self._has("attention.key_length"):
            head_size = self._value("attention.key_length")
        if self._has("rope.dimension_count") and self._value("rope.dimension_count") != head_size:
            raise ValueError(
                f"{self._path} turns {self._value('rope.dimension_count')} of {head_size} "
                "dimensions of a head; only rotary embeddings over the whole head are supported"
            )
        theta = _DEFAULT_ROPE_THETA
        if self._has("rope.freq_base"):
            theta = _shortest(self._value("rope.freq_base"))
        return {
            "model_type": self._architecture,
            "vocab_size": self._entries[_EMBEDDING].shape[0],
            "hidden_size": width,
            "intermediate_size": self._value("feed_forward_length"),
            "num_hidden_layers": self._value("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._value("attention.head_count_kv"),
            "head_dim": head_size,
            "max_position_embeddings": self._value("context_length"),
            "rms_norm_eps": _shortest(self._value("attention.layer_norm_rms_epsilon")),
            "rope_theta": theta,
            "rope_scaling": self._rope_scaling(theta),
            "attention_bias": self._architecture == "llama"
            and "blk.0.attn_q.bias" in self._entries,
            "tie_word_embeddings": self._is_tied,
        }

    def _rope_scaling(self, theta: float) -> dict[str, Any] | None:
        if _ROPE_FACTORS in self._entries:
            stored = self._dequantised(_ROPE_FACTORS)
            factor = float(stored.max())
            expected = llama3_frequency_divisors(2 * stored.size, theta, factor)
            if not np.allclose(stored, expected, rtol=1e-4):
                raise ValueError(
                    f"{self._path}: the frequencies of {_ROPE_FACTORS} are not those of Llama 3.1 "
                    f"to 3.3 with factor {factor}; load the Hugging Face directory instead"
                )
            return {**_LLAMA3_ROPE, "factor": factor}
        if not self._has("rope.scaling.type") or self._value("rope.scaling.type") == "none":
            return None
        return {
            "rope_type": self._value("rope.scaling.type"),
            "factor": self._value("rope.scaling.factor"),
        }


def load_gguf(
    path: str | pathlib.Path,
    policy: Policy,
    layout: Layout | None = None,
    dtype: str = "float32",
) -> Params:
    """Parameters of a `.gguf` file, each put straight on its devices.

    Args:
      path: the file; `read_config` gives the configuration that the policy needs.
      policy: says which parameters there are and how large they are.
      layout: where the parameters go; None is the default device.
      dtype: type of the parameters.

    Raises:
      ValueError: the file is damaged, of another architecture, or does not fit the policy.
    """
    return assemble(GGUFFile(path), policy, layout, dtype)


def read_config(path: str | pathlib.Path) -> DecoderConfig:
    """Configuration of the decoder in a `.gguf` file."""
    return GGUFFile(path).config


def rotary_halves(value: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a llama q or k matrix [heads * H, D] or bias [heads * H] in Hugging Face's order.

    llama.cpp turns neighbouring rows of a head as a pair, Hugging Face row i with row i + H/2;
    the converter to GGUF interleaves the two halves of every head to make up for it.
    """
    pairs = value.reshape(heads, len(value) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(value.shape)


def llama3_frequency_divisors(head_size: int, theta: float, factor: float) -> np.ndarray:
    """[H/2]: by what the llama3 scaling divides each rotary frequency (arXiv:2407.21783)."""
    wavelength = 2 * math.pi * theta ** (np.arange(0, head_size, 2) / head_size)
    turns = _LLAMA3_ROPE["original_max_position_embeddings"] / wavelength
    low, high = _LLAMA3_ROPE["low_freq_factor"], _LLAMA3_ROPE["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - kept) / factor + kept)


def _hugging_face_name(name: str) -> str:
    """Hugging Face's name of a GGUF tensor; an unknown one keeps its own and is reported later."""
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match name.split("."):
        case ["blk", layer, kind, part] if kind in _BLOCK_NAMES:
            return f"model.layers.{layer}.{_BLOCK_NAMES[kind]}.{part}"
    return name


def _shortest(value: float) -> float:
    """1e-06 from 9.999999974752427e-07: the decimal that a float32 was written for."""
    return float(str(np.float32(value)))
