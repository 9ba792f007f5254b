"""Sentence encoder of the BERT family in JAX: mean of the last hidden states, with unit norm.

It reads a folder with `config.json`, `model.safetensors` and `tokenizer.json`, for example
all-MiniLM-L6-v2 or e5. Models of the e5 family need one prefix for queries and another for
passages. A model is treated as e5 if the name of its folder or its `_name_or_path` contains `e5`.
"""

import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from agentgym_envs.base.environment import SetupError

_FILES = ("config.json", "model.safetensors", "tokenizer.json")
# row lengths in tokens; a batch is padded to the next length, so that few programs are compiled
_LENGTHS = (32, 64, 128, 256)
_MASKED = -1e9


class Encoder:
    """Encoder from texts to vectors.

    Raises:
      SetupError: The folder lacks a file, or the model is not of type `bert`.
    """

    def __init__(self, folder: pathlib.Path):
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise SetupError(f"searchqa: the sentence encoder {folder} lacks {', '.join(missing)}")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] != "bert":
            raise SetupError(
                f"searchqa: {folder} is a model of type {config['model_type']!r}, expected 'bert', as "
                "MiniLM, e5, bge and gte are"
            )
        weights = load_file(folder / "model.safetensors")
        self._weights = {
            name.removeprefix("bert."): jnp.asarray(value, jnp.float32)
            for name, value in weights.items()
            if value.dtype.kind == "f"
        }
        self.width = int(config["hidden_size"])
        self._forward = functools.partial(
            _forward,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            epsilon=config["layer_norm_eps"],
        )
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(min(_LENGTHS[-1], config["max_position_embeddings"]))
        names = f"{folder.name} {config.get('_name_or_path', '')}".lower()
        self._prefixes = ("query: ", "passage: ") if "e5" in names else ("", "")

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes queries to vectors, float32 [texts, width]."""
        return self._encode([self._prefixes[0] + text for text in texts])

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes passages to vectors, float32 [texts, width]."""
        return self._encode([self._prefixes[1] + text for text in texts])

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        encoded = [row.ids for row in self._tokenizer.encode_batch(list(texts))]
        length = next(n for n in _LENGTHS if n >= min(max(map(len, encoded)), _LENGTHS[-1]))
        rows = 1 << (len(encoded) - 1).bit_length()
        ids_BT = np.zeros((rows, length), np.int32)
        valid_BT = np.zeros((rows, length), bool)
        valid_BT[:, 0] = True  # a padding row needs a valid token for its mean
        for row, ids in enumerate(encoded):
            ids_BT[row, : len(ids)] = ids
            valid_BT[row, : len(ids)] = True
        return np.asarray(self._forward(self._weights, ids_BT, valid_BT))[: len(encoded)]


@functools.partial(jax.jit, static_argnames=("layers", "heads", "epsilon"))
def _forward(
    weights: Mapping[str, Any],
    ids_BT: Any,
    valid_BT: Any,
    *,
    layers: int,
    heads: int,
    epsilon: float,
) -> Any:
    """Computes BERT (arXiv:1810.04805), then the normalised mean over valid tokens."""
    rows, length = ids_BT.shape

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"][None, None]

    def normed(x: Any, name: str) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        scaled = (x - mean) * jax.lax.rsqrt(variance + epsilon)
        return scaled * weights[f"{name}.weight"][None, None] + weights[f"{name}.bias"][None, None]

    x_BTD = (
        weights["embeddings.word_embeddings.weight"][ids_BT]
        + weights["embeddings.position_embeddings.weight"][:length][None]
        + weights["embeddings.token_type_embeddings.weight"][0][None, None]
    )
    x_BTD = normed(x_BTD, "embeddings.LayerNorm")
    head = x_BTD.shape[-1] // heads
    bias_B11T = jnp.where(valid_BT, 0.0, _MASKED)[:, None, None, :]
    for layer in range(layers):
        name = f"encoder.layer.{layer}"

        def split(part: str, x: Any = x_BTD, name: str = name) -> Any:
            projected = linear(x, f"{name}.attention.self.{part}")
            return projected.reshape(rows, length, heads, head).transpose(0, 2, 1, 3)

        q_BNTH, k_BNTH, v_BNTH = split("query"), split("key"), split("value")
        scores = q_BNTH @ k_BNTH.transpose(0, 1, 3, 2) / head**0.5 + bias_B11T
        mixed = (jax.nn.softmax(scores, axis=-1) @ v_BNTH).transpose(0, 2, 1, 3)
        mixed = linear(mixed.reshape(x_BTD.shape), f"{name}.attention.output.dense")
        x_BTD = normed(x_BTD + mixed, f"{name}.attention.output.LayerNorm")
        inner = jax.nn.gelu(linear(x_BTD, f"{name}.intermediate.dense"), approximate=False)
        x_BTD = normed(x_BTD + linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    weight_BT1 = valid_BT[..., None].astype(x_BTD.dtype)
    mean_BD = (x_BTD * weight_BT1).sum(1) / weight_BT1.sum(1)
    return mean_BD / jnp.linalg.norm(mean_BD, axis=-1, keepdims=True)
