"""Tensors of Hugging Face checkpoints: their names and axes, and the files that store them.

Hugging Face stores one matrix [out, in] per layer. The parameter tree stacks the matrices of all
layers as [L, in..., out...], with heads split. `RULES` defines the conversion.
"""

import dataclasses
import itertools
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import safetensors
from absl import logging

from agentgym_jax.checks import limits
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.hybrid import FULL, linear_name

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
_ROWS = 4096  # rows of a slice when two tensors are compared
# Types of plain weights in safetensors; others (int8, float8) belong to quantised weights.
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclasses.dataclass(frozen=True)
class Rule:
    """Name and form of one parameter in a Hugging Face checkpoint.

    Attributes:
      name: Tensor name; contains `{layer}` if every layer has a tensor.
      form: `table` is stored unchanged; `vector` is stored as one axis; `matrix` is stored as
        [out, in], with all output axes joined to one and all input axes joined to one; `filter` is
        [C, W], stored as [C, 1, W].
      inputs: Number of leading axes of a matrix (after L) that are inputs.
      first: Layer of the first stacked value.
      step: Distance between the layers of two stacked values.
    """

    name: str
    form: Literal["table", "vector", "matrix", "filter"] = "vector"
    inputs: int = 1
    first: int = 0
    step: int = 1

    @property
    def is_stacked(self) -> bool:
        """Returns True if every layer has a tensor."""
        return "{layer}" in self.name

    def names(self, count: int) -> list[str]:
        """Returns the names of the tensors of `count` stacked values, in the order of the layers."""
        if not self.is_stacked:
            return [self.name]
        return [self.name.format(layer=self.first + i * self.step) for i in range(count)]

    def stored_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the stored shape of a parameter of one layer, whose shape is `shape`."""
        if self.form == "table":
            return tuple(shape)
        if self.form == "vector":
            return (math.prod(shape),)
        if self.form == "filter":
            return (shape[0], 1, shape[1])
        return (math.prod(shape[self.inputs :]), math.prod(shape[: self.inputs]))

    def from_stored(self, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Returns a view of the stored tensor in the shape of the parameter of one layer."""
        return (value.T if self.form == "matrix" else value).reshape(shape)

    def to_stored(self, value: np.ndarray) -> np.ndarray:
        """Returns a parameter of one layer in the stored form; inverse of `from_stored`."""
        stored = self.stored_shape(value.shape)
        return value.reshape(stored[::-1]).T if self.form == "matrix" else value.reshape(stored)


_BLOCK = "model.layers.{layer}."
RULES: dict[tuple[str, ...], Rule] = {
    ("embed", "embedding"): Rule("model.embed_tokens.weight", "table"),
    ("layers", "attention_norm", "scale"): Rule(_BLOCK + "input_layernorm.weight"),
    ("layers", "attention", "q_kernel"): Rule(_BLOCK + "self_attn.q_proj.weight", "matrix"),
    ("layers", "attention", "k_kernel"): Rule(_BLOCK + "self_attn.k_proj.weight", "matrix"),
    ("layers", "attention", "v_kernel"): Rule(_BLOCK + "self_attn.v_proj.weight", "matrix"),
    ("layers", "attention", "o_kernel"): Rule(_BLOCK + "self_attn.o_proj.weight", "matrix", 2),
    ("layers", "attention", "q_bias"): Rule(_BLOCK + "self_attn.q_proj.bias"),
    ("layers", "attention", "k_bias"): Rule(_BLOCK + "self_attn.k_proj.bias"),
    ("layers", "attention", "v_bias"): Rule(_BLOCK + "self_attn.v_proj.bias"),
    # Only a Llama with attention_bias has this bias. The decoder lacks it, so zeros are exported.
    ("layers", "attention", "o_bias"): Rule(_BLOCK + "self_attn.o_proj.bias"),
    ("layers", "attention", "q_norm"): Rule(_BLOCK + "self_attn.q_norm.weight"),
    ("layers", "attention", "k_norm"): Rule(_BLOCK + "self_attn.k_norm.weight"),
    ("layers", "mlp_norm", "scale"): Rule(_BLOCK + "post_attention_layernorm.weight"),
    ("layers", "mlp", "gate_kernel"): Rule(_BLOCK + "mlp.gate_proj.weight", "matrix"),
    ("layers", "mlp", "up_kernel"): Rule(_BLOCK + "mlp.up_proj.weight", "matrix"),
    ("layers", "mlp", "down_kernel"): Rule(_BLOCK + "mlp.down_proj.weight", "matrix"),
    ("final_norm", "scale"): Rule("model.norm.weight"),
    ("unembed", "kernel"): Rule("lm_head.weight", "matrix"),
}


_DELTA_NET = _BLOCK + "linear_attn."
# Rules of the parameters of a gated delta net (models/hybrid.py).
_DELTA_NET_RULES = {
    "qkv_kernel": Rule(_DELTA_NET + "in_proj_qkv.weight", "matrix"),
    "z_kernel": Rule(_DELTA_NET + "in_proj_z.weight", "matrix"),
    "beta_kernel": Rule(_DELTA_NET + "in_proj_b.weight", "matrix"),
    "decay_kernel": Rule(_DELTA_NET + "in_proj_a.weight", "matrix"),
    "out_kernel": Rule(_DELTA_NET + "out_proj.weight", "matrix", 2),
    "conv_weight": Rule(_DELTA_NET + "conv1d.weight", "filter"),
    "decay_bias": Rule(_DELTA_NET + "dt_bias"),
    "log_rate": Rule(_DELTA_NET + "A_log"),
    "norm": Rule(_DELTA_NET + "norm.weight"),
}
# Tensors of released Qwen3.5 checkpoints that are not part of the decoder: the vision tower and the
# head that predicts several tokens.
_OTHER_PARTS = ("model.visual.", "mtp.")


def get_rules(config: DecoderConfig) -> dict[tuple[str, ...], Rule]:
    """Returns the rules of all parameters of a decoder, by their paths."""
    if config.hybrid is None:
        return RULES
    interval = config.hybrid.interval
    names = [*(linear_name(i) for i in range(interval - 1)), FULL]
    rules = {}
    for path, rule in RULES.items():
        if path[0] != "layers":
            rules[path] = rule
            continue
        for first, name in enumerate(names):
            moved = dataclasses.replace(rule, first=first, step=interval)
            rules["layers", name, *path[1:]] = moved
    for first, name in enumerate(names[:-1]):
        for parameter, rule in _DELTA_NET_RULES.items():
            moved = dataclasses.replace(rule, first=first, step=interval)
            rules["layers", name, "delta_net", parameter] = moved
    return rules


def find_decoder_tensors(
    directory: pathlib.Path, config: DecoderConfig
) -> "dict[str, StoredTensor]":
    """Returns the tensors of the decoder by their names in RULES (`find_tensors`).

    Checkpoints of Qwen3.5 may have a vision tower and a multi-token prediction head, which are
    ignored.
    """
    tensors = find_tensors(directory)
    if config.hybrid is None:
        return tensors
    ignored = [name for name in tensors if name.startswith(_OTHER_PARTS)]
    if ignored:
        logging.info(
            "%s: %d tensors of the vision tower and of the multi-token prediction head are ignored; "
            "the model reads text only",
            directory,
            len(ignored),
        )
    return {
        name.replace("model.language_model.", "model.", 1): tensor
        for name, tensor in tensors.items()
        if not name.startswith(_OTHER_PARTS)
    }


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Name, file and shape of a tensor in a safetensors file."""

    name: str
    file: pathlib.Path
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Reads the tensor, in its stored type.

        The file is opened for each tensor, so that pages of earlier tensors do not stay mapped.
        """
        with open_file(self.file) as file:
            return file.get_tensor(self.name)

    def equals(self, other: "StoredTensor") -> bool:
        """Returns True if both tensors have the same values; reads slices of the first axis."""
        if self.shape != other.shape:
            return False
        with open_file(self.file) as file, open_file(other.file) as other_file:
            mine, theirs = file.get_slice(self.name), other_file.get_slice(other.name)
            stops = [*range(_ROWS, self.shape[0], _ROWS), self.shape[0]]
            parts = itertools.pairwise([0, *stops])
            return all(np.array_equal(mine[i:j], theirs[i:j]) for i, j in parts)


def find_tensors(directory: pathlib.Path) -> dict[str, StoredTensor]:
    """Returns all tensors of a Hugging Face directory by name; reads only the files' headers.

    The directory has one safetensors file, or several with an index.

    Raises:
      ValueError: The index is invalid, a file is truncated, or a tensor has no floating-point type.
      FileNotFoundError: A file is missing.
    """
    index = directory / INDEX_FILE
    file_names = [SINGLE_FILE]
    if index.exists():
        found = limits.read_object(index, {"weight_map": Mapping[str, str]})
        if not found.get("weight_map"):
            raise ValueError(f"{index} has no weight_map, which names the file of every tensor")
        file_names = sorted(set(found["weight_map"].values()))
        outside = [name for name in file_names if pathlib.Path(name).name != name]
        if outside:
            raise ValueError(
                f"{index}: weight_map names {limits.shorten(outside[0])}, expected a file name"
            )
    # os.path has no error for names that are too long.
    missing = [name for name in file_names if not os.path.isfile(directory / name)]
    if missing:
        named = ", ".join(limits.shorten(name) for name in missing[:3])
        raise FileNotFoundError(
            f"{directory} has no {named}{', ...' if len(missing) > 3 else ''}. A "
            f"Hugging Face directory holds {SINGLE_FILE}, or the files named in {INDEX_FILE}; finish "
            "its download, or convert other weight formats to safetensors first."
        )
    tensors = {}
    for path in [directory / name for name in file_names]:
        for tensor in read_header(path):
            tensors[tensor.name] = tensor
    return tensors


def read_header(path: pathlib.Path) -> Iterator[StoredTensor]:
    """Yields the tensors of a safetensors file.

    Raises:
      ValueError: The file is truncated, or a tensor has no floating-point type.
    """
    with open_file(path) as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            stored = file.get_slice(name)
            if stored.get_dtype() not in _FLOATS:
                raise ValueError(
                    f"{path}: {name} has type {stored.get_dtype()}, expected {', '.join(_FLOATS)}. "
                    "Quantised weights are not supported: use the model that was quantised, or "
                    "dequantise it with transformers (model.dequantize(), then save_pretrained)"
                )
            yield StoredTensor(name, path, tuple(stored.get_shape()))


def open_file(path: pathlib.Path) -> Any:
    """Opens a safetensors file; raises ValueError if it is damaged."""
    try:
        return safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) is no complete safetensors file: {error}. "
            "It was cut off or damaged: fetch or export it again."
        ) from error
