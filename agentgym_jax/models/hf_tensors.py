"""Tensors of Hugging Face checkpoints: reading them, and the mapping of their names and axes to the
parameter tree.

Hugging Face stores one matrix [out, in] per layer. The parameter tree stacks the matrices of all
layers as [L, in..., out...], with heads split. `RULES` defines the whole conversion.
"""

import contextlib
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import safetensors

Path = tuple[str, ...]

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class Rule:
    """Name and form of one parameter in a Hugging Face checkpoint.

    Attributes:
      name: Tensor name; contains `{layer}` if every layer has a tensor.
      form: `table` is stored unchanged; `vector` is stored with its axes joined; `matrix` is stored
        as [out, in] with the axes of each side joined.
      inputs: Number of leading axes of a matrix (after L) that are inputs.
    """

    name: str
    form: Literal["table", "vector", "matrix"] = "vector"
    inputs: int = 1

    @property
    def is_stacked(self) -> bool:
        """Returns True if every layer has a separate tensor."""
        return "{layer}" in self.name

    def names(self, layers: int) -> list[str]:
        """Returns the names of the tensors, in the order of the layers."""
        if not self.is_stacked:
            return [self.name]
        return [self.name.format(layer=layer) for layer in range(layers)]

    def part_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape that one tensor has in the parameter tree: all axes except L."""
        return shape[1:] if self.is_stacked else shape

    def stored_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape that a part of shape `shape` has in the file."""
        match self.form:
            case "table":
                return tuple(shape)
            case "vector":
                return (math.prod(shape),)
            case "matrix":
                return (math.prod(shape[self.inputs :]), math.prod(shape[: self.inputs]))

    def from_stored(self, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Returns a view of the stored tensor in the shape of the part."""
        return (value.T if self.form == "matrix" else value).reshape(shape)

    def to_stored(self, value: np.ndarray) -> np.ndarray:
        """Converts a part to the form that is stored; inverse of `from_stored`."""
        stored = self.stored_shape(value.shape)
        return value.reshape(stored[::-1]).T if self.form == "matrix" else value.reshape(stored)


_BLOCK = "model.layers.{layer}."
RULES: dict[Path, Rule] = {
    ("embed", "embedding"): Rule("model.embed_tokens.weight", "table"),
    ("layers", "attention_norm", "scale"): Rule(_BLOCK + "input_layernorm.weight"),
    ("layers", "attention", "q_kernel"): Rule(_BLOCK + "self_attn.q_proj.weight", "matrix"),
    ("layers", "attention", "k_kernel"): Rule(_BLOCK + "self_attn.k_proj.weight", "matrix"),
    ("layers", "attention", "v_kernel"): Rule(_BLOCK + "self_attn.v_proj.weight", "matrix"),
    ("layers", "attention", "o_kernel"): Rule(_BLOCK + "self_attn.o_proj.weight", "matrix", 2),
    ("layers", "attention", "q_bias"): Rule(_BLOCK + "self_attn.q_proj.bias"),
    ("layers", "attention", "k_bias"): Rule(_BLOCK + "self_attn.k_proj.bias"),
    ("layers", "attention", "v_bias"): Rule(_BLOCK + "self_attn.v_proj.bias"),
    # Only a llama with attention_bias has this bias. The decoder lacks it, so zeros are written.
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


class TensorSource(Protocol):
    """Source of tensors with Hugging Face's names and axes, read one at a time."""

    @property
    def location(self) -> str:
        """Returns the name of the source in error messages."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of all tensors, by name."""

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor, in any float type."""


class SafetensorsDirectory:
    """The safetensors of a Hugging Face directory: one file, or several with an index."""

    def __init__(self, directory: str | pathlib.Path) -> None:
        self._directory = pathlib.Path(directory)
        self._files = self._find_files()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._file_of: dict[str, pathlib.Path] = {}
        for path in self._files:
            with self._open(path) as file:
                for name in file.keys():  # noqa: SIM118 (not a mapping)
                    self._shapes[name] = tuple(file.get_slice(name).get_shape())
                    self._file_of[name] = path

    @property
    def location(self) -> str:
        """Path of the directory."""
        return str(self._directory)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of all tensors in the files, by name."""
        return self._shapes

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor, in its stored type.

        The file is opened again for every tensor, so that the pages of earlier tensors do not stay
        mapped.
        """
        with self._open(self._file_of[name]) as file:
            return file.get_tensor(name)

    def _find_files(self) -> list[pathlib.Path]:
        index = self._directory / INDEX_FILE
        if index.exists():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            names = [SINGLE_FILE]
        missing = [name for name in names if not (self._directory / name).exists()]
        if missing:
            raise FileNotFoundError(
                f"{self._directory} has no {', '.join(missing)}. A Hugging Face directory holds "
                f"{SINGLE_FILE}, or the files named in {INDEX_FILE}; finish its download, or "
                "convert other weight formats to safetensors first."
            )
        return [self._directory / name for name in names]

    @contextlib.contextmanager
    def _open(self, path: pathlib.Path) -> Iterator[Any]:
        try:
            file = safetensors.safe_open(path, "np")
        except safetensors.SafetensorError as error:
            raise ValueError(
                f"{path} ({path.stat().st_size} bytes) is no complete safetensors file: {error}. "
                "It was cut off or damaged: fetch or export it again."
            ) from error
        with file:
            yield file
