"""Loading of `.gguf` files: configuration from the metadata, tensors dequantised one at a time.

The `gguf` package decodes the quantised blocks. Names and axes are translated to Hugging Face's, so
that `weights.assemble` builds the parameters from both file formats.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize

from agentgym_jax.models.config import (
    DecoderConfig,
    RopeScaling,
    from_hf_config,
    to_hf_rope_scaling,
)
from agentgym_jax.models.decoder import llama3_frequencies
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
_ROPE_FACTORS = "rope_freqs.weight"  # factors of llama.cpp's llama3 rope scaling, not a weight
_DEFAULT_ROPE_THETA = 10000.0  # default for a file without `rope.freq_base`
_REQUIRED = object()  # marks metadata that every file must have
_ROWS_AT_ONCE = 4096
# number of rows compared to decide if head and embedding are the same matrix
_ROWS_COMPARED = 1024
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
        """Path of the file."""
        return str(self._path)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of all tensors, by name."""
        return {name: self._entries[stored].shape for name, stored in self._names.items()}

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor, dequantised to float32."""
        value = self._dequantised(self._names[name])
        if self._architecture == "llama":
            if ".self_attn.q_proj." in name:
                value = rotary_halves(value, self.config.num_heads)
            elif ".self_attn.k_proj." in name:
                value = rotary_halves(value, self.config.num_kv_heads)
        return value

    def _head_repeats_embedding(self) -> bool:
        """Returns True if the stored output head equals the embedding within the rounding of both.

        Some quantisers store a tied head as a separate tensor of another type.
        """
        if self._entries[_HEAD].shape != self._entries[_EMBEDDING].shape:
            return False
        stride = max(1, self._entries[_HEAD].shape[0] // _ROWS_COMPARED)
        head, embedding = (self._dequantised(name, stride) for name in (_HEAD, _EMBEDDING))
        # Uniform rounding to b bits has a relative error of about 2^-b.
        bound = 3.0 * 2.0 ** -min(map(self._precision, (_HEAD, _EMBEDDING)))
        return bool(np.linalg.norm(head - embedding) <= bound * np.linalg.norm(embedding))

    def _precision(self, name: str) -> float:
        """Returns the bits per number of a tensor; the scales of its blocks are included."""
        kind = _KINDS[self._entries[name].kind]
        if kind in _MANTISSA_BITS:
            return _MANTISSA_BITS[kind]
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        return 8 * block_bytes / block_size

    def _dequantised(self, name: str, stride: int = 1) -> np.ndarray:
        """Reads a tensor by its GGUF name; a `stride` above 1 reads every `stride`-th row only.

        Decodes a few rows at a time, because decoding makes several copies of its input.
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
        found = self._fields.get("general.architecture")
        if found not in ARCHITECTURES:
            raise ValueError(
                f"{self._path}: architecture {found!r} is not supported; "
                f"supported: {', '.join(ARCHITECTURES)}"
            )
        return found

    def _value(self, key: str, default: Any = _REQUIRED) -> Any:
        """Returns the metadata `key` of the file's architecture."""
        name = f"{self._architecture}.{key}"
        if name not in self._fields and default is _REQUIRED:
            raise ValueError(f"{self._path} lacks the metadata {name}")
        return self._fields.get(name, default)

    def _hf_config(self) -> dict[str, Any]:
        """Returns the metadata converted to the keys and values of a Hugging Face `config.json`."""
        heads, width = self._value("attention.head_count"), self._value("embedding_length")
        head_size = self._value("attention.key_length", width // heads)
        turned = self._value("rope.dimension_count", head_size)
        if turned != head_size:
            raise ValueError(
                f"{self._path} turns {turned} of {head_size} "
                "dimensions of a head; only rotary embeddings over the whole head are supported"
            )
        theta = _shortest(self._value("rope.freq_base", _DEFAULT_ROPE_THETA))
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
            # All released Llama 3.1, 3.2 and 3.3 models use the default options of the scaling,
            # except the factor.
            scaling = RopeScaling("llama3", factor=float(stored.max()))
            plain = theta ** -(np.arange(stored.size) / stored.size)
            if not np.allclose(stored, plain / llama3_frequencies(plain, scaling), rtol=1e-4):
                raise ValueError(
                    f"{self._path}: the frequencies of {_ROPE_FACTORS} are not those of Llama 3.1 "
                    f"to 3.3 with factor {scaling.factor}; load the Hugging Face directory instead"
                )
            return to_hf_rope_scaling(scaling)
        kind = self._value("rope.scaling.type", "none")
        if kind == "none":
            return None
        return {"rope_type": kind, "factor": self._value("rope.scaling.factor")}


def load_gguf(
    path: str | pathlib.Path,
    policy: Policy,
    layout: Layout | None = None,
    dtype: str = "float32",
) -> Params:
    """Loads the parameters of a `.gguf` file for a policy whose config is the result of
    `read_config`.

    Raises:
      ValueError: The file is damaged, has an unsupported architecture, or does not match the
        policy.
    """
    return assemble(GGUFFile(path), policy, layout, dtype)


def read_config(path: str | pathlib.Path) -> DecoderConfig:
    """Reads the configuration of the decoder in a `.gguf` file."""
    return GGUFFile(path).config


def rotary_halves(value: np.ndarray, heads: int) -> np.ndarray:
    """Returns the rows of a llama q or k matrix [heads * H, D] or bias [heads * H] in Hugging
    Face's order.

    llama.cpp rotates neighbouring rows of a head as a pair; Hugging Face rotates rows i and i + H/2
    as a pair. The converter to GGUF therefore interleaves the two halves of every head.
    """
    pairs = value.reshape(heads, len(value) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(value.shape)


def _hugging_face_name(name: str) -> str:
    """Returns Hugging Face's name of a GGUF tensor.

    An unknown name is returned unchanged and reported later.
    """
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match name.split("."):
        case ["blk", layer, kind, part] if kind in _BLOCK_NAMES:
            return f"model.layers.{layer}.{_BLOCK_NAMES[kind]}.{part}"
    return name


def _shortest(value: float) -> float:
    """Returns the shortest decimal that rounds to the same float32: 1e-06 for
    9.999999974752427e-07.
    """
    return float(str(np.float32(value)))
