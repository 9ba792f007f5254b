"""Hugging Face safetensors to the parameter tree of `models/decoder.py`, and back.

Hugging Face keeps one matrix per layer as [out, in]; the parameter tree keeps the layers of one
kind stacked, as [L, in..., out...] with heads split. `RULES` is the whole correspondence.
"""

import contextlib
import dataclasses
import json
import math
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from agentgym_jax.models.config import DecoderConfig, to_hf_config
from agentgym_jax.models.policy import Policy
from agentgym_jax.sharding import Layout

Params = dict[str, Any]
Path = tuple[str, ...]

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
MAX_SHARD_BYTES = 5 * 10**9  # what Hugging Face's own exports use
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)


@dataclasses.dataclass(frozen=True)
class Rule:
    """Where one parameter stands in a Hugging Face checkpoint, and in which form.

    Attributes:
      name: tensor name; `{layer}` where there is one tensor per layer.
      form: `table` is stored as it is; `vector` is stored with its axes joined; `matrix` is
        stored as [out, in] with the axes of each side joined.
      inputs: of a matrix, how many leading axes (after L) are its input.
    """

    name: str
    form: Literal["table", "vector", "matrix"] = "vector"
    inputs: int = 1

    @property
    def is_stacked(self) -> bool:
        """True if there is one tensor per layer."""
        return "{layer}" in self.name

    def names(self, layers: int) -> list[str]:
        """Names of the tensors, in the order of the layers."""
        if not self.is_stacked:
            return [self.name]
        return [self.name.format(layer=layer) for layer in range(layers)]

    def stored_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape in the file of a parameter whose shape, without L, is `shape`."""
        match self.form:
            case "table":
                return tuple(shape)
            case "vector":
                return (math.prod(shape),)
            case "matrix":
                return (math.prod(shape[self.inputs :]), math.prod(shape[: self.inputs]))

    def from_stored(self, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """A view of the stored tensor in the axes of the parameter."""
        return (value.T if self.form == "matrix" else value).reshape(shape)

    def to_stored(self, value: np.ndarray) -> np.ndarray:
        """Inverse of `from_stored`."""
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
    """Tensors under their Hugging Face names and in Hugging Face's axes, read one at a time."""

    @property
    def location(self) -> str:
        """What to call the source in an error message."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor."""

    def read(self, name: str) -> np.ndarray:
        """One tensor, in any float type."""


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
        """The directory."""
        return str(self._directory)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor in the files."""
        return self._shapes

    def read(self, name: str) -> np.ndarray:
        """One tensor, in the type it is stored in.

        The file is opened again for every tensor, so that the pages of the tensors read before
        do not stay mapped.
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


def load_hf(
    directory: str | pathlib.Path,
    policy: Policy,
    layout: Layout | None = None,
    dtype: str = "float32",
) -> Params:
    """Parameters of a Hugging Face directory, each put straight on its devices.

    Args:
      directory: holds `model.safetensors`, or several files with their index.
      policy: says which parameters there are and how large they are.
      layout: where the parameters go; None is the default device.
      dtype: type of the parameters; the file may have another one.

    Raises:
      ValueError: tensors are missing, unexpected or wrongly shaped, or a file is cut off.
      FileNotFoundError: a file is missing.
    """
    return assemble(SafetensorsDirectory(directory), policy, layout, dtype)


def assemble(
    source: TensorSource, policy: Policy, layout: Layout | None = None, dtype: str = "float32"
) -> Params:
    """Builds the parameter tree one parameter at a time, reading every tensor once.

    Host memory stays near the finished parameters plus the largest single one: only the slices
    that this process's devices need are filled, handed over, and released.
    """
    abstract = policy.abstract_params()
    check_tensors(source, abstract, policy.config)
    shardings = policy.param_shardings(layout)
    params: Params = {}
    for path, leaf in flat_items(abstract):
        rule = RULES[path]
        names = rule.names(policy.config.num_layers)
        parts = lambda i, rule=rule, names=names, leaf=leaf: rule.from_stored(
            source.read(names[i]), leaf.shape[1:] if rule.is_stacked else leaf.shape
        )
        sharding = None if shardings is None else _at(shardings, path)
        _insert(params, path, _place(parts, rule.is_stacked, leaf.shape, dtype, sharding))
    return params


def check_tensors(source: TensorSource, abstract: Params, config: DecoderConfig) -> None:
    """Raises one ValueError that names all tensors that are missing, too many or misshapen."""
    found = source.shapes()
    expected = {}
    for path, leaf in flat_items(abstract):
        rule = RULES[path]
        shape = rule.stored_shape(leaf.shape[1:] if rule.is_stacked else leaf.shape)
        expected.update(dict.fromkeys(rule.names(config.num_layers), shape))
    missing = [name for name in expected if name not in found]
    unexpected = [
        name for name in found if name not in expected and not _is_redundant(name, config)
    ]
    misshapen = [
        f"{name} is {found[name]}, expected {shape}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    problems = [
        f"{len(names)} {what}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
        for what, names in [
            ("missing", missing),
            ("unexpected", unexpected),
            ("wrongly shaped", misshapen),
        ]
        if names
    ]
    if problems:
        raise ValueError(
            f"{source.location} does not hold the tensors of its configuration "
            f"({config.num_layers} layers, tie_embeddings={config.tie_embeddings}, "
            f"qkv_bias={config.qkv_bias}, qk_norm={config.qk_norm}). {'; '.join(problems)}. "
            "Check that config.json belongs to these weights."
        )


def _is_redundant(name: str, config: DecoderConfig) -> bool:
    """True for tensors that older exports store though they follow from the rest."""
    if name == "lm_head.weight":
        return config.tie_embeddings
    return name.endswith("rotary_emb.inv_freq")


def _place(
    read_part: Callable[[int], np.ndarray],
    is_stacked: bool,
    shape: tuple[int, ...],
    dtype: str,
    sharding: jax.sharding.Sharding | None,
) -> jax.Array:
    """One parameter on its devices. `read_part(i)` is layer i, or the whole if not stacked."""
    host_dtype = jnp.dtype(dtype)
    if sharding is None:
        wanted = {_bounds((slice(None),) * len(shape), shape)}
    else:
        indices = sharding.addressable_devices_indices_map(shape).values()
        wanted = {_bounds(index, shape) for index in indices}
    shards = {
        bounds: np.empty([stop - start for start, stop in bounds], host_dtype) for bounds in wanted
    }
    for i in range(shape[0] if is_stacked else 1):
        takers = [b for b in wanted if not is_stacked or b[0][0] <= i < b[0][1]]
        if not takers:
            continue
        part = read_part(i)
        for bounds in takers:
            inner = tuple(slice(*b) for b in (bounds[1:] if is_stacked else bounds))
            target = shards[bounds][i - bounds[0][0]] if is_stacked else shards[bounds]
            target[...] = part[inner]
    if sharding is None:
        (value,) = shards.values()
        return jax.device_put(value)
    return jax.make_array_from_callback(
        shape, sharding, lambda index: shards[_bounds(index, shape)]
    )


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Start and stop per axis: slices themselves cannot be keys on Python 3.11."""
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape, strict=True))


def save_hf(
    params: Params,
    config: DecoderConfig,
    directory: str | pathlib.Path,
    *,
    dtype: str,
    tokenizer_files: str | pathlib.Path | None = None,
    overwrite: bool = False,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes a directory that `transformers` loads: configuration, safetensors, tokenizer.

    It is written beside its place and renamed when complete: a reader sees all of it or nothing.

    Args:
      params: parameter tree; may be sharded over the devices of this process.
      config: configuration of the decoder.
      directory: must not exist, unless `overwrite` and it is an earlier export.
      dtype: type of the stored tensors, such as `bfloat16`.
      tokenizer_files: directory whose tokenizer files are copied; None for none.
      overwrite: replace an existing export.
      max_shard_bytes: a larger checkpoint is split into several files with an index.

    Raises:
      FileExistsError: the directory exists and may not be replaced.
    """
    target = pathlib.Path(directory)
    check_target(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
        new = pathlib.Path(temporary) / "new"
        new.mkdir()
        if tokenizer_files is not None:
            copy_tokenizer(pathlib.Path(tokenizer_files), new)
        special = _special_ids(new)
        _write_json(new / "config.json", to_hf_config(config) | {"torch_dtype": dtype} | special)
        if not (new / "generation_config.json").exists():
            _write_json(new / "generation_config.json", {"do_sample": True, **special})
        _write_tensors(params, config, new, dtype, max_shard_bytes)
        if target.exists():
            target.rename(pathlib.Path(temporary) / "old")
        new.rename(target)


def check_target(target: pathlib.Path, overwrite: bool) -> None:
    """Raises FileExistsError unless `save_hf` may write to `target`."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(f"{target} exists. Choose another --out, or pass --overwrite.")
    if not (target / "config.json").exists() or not any(target.glob("*.safetensors")):
        raise FileExistsError(
            f"{target} is no earlier export (it has no config.json beside safetensors), so it is "
            "not replaced. Choose another --out, or remove it yourself."
        )


def copy_tokenizer(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the tokenizer files of a Hugging Face directory."""
    names = [name for name in TOKENIZER_FILES if (source / name).exists()]
    if not any(name.startswith(("tokenizer", "vocab")) for name in names):
        raise FileNotFoundError(
            f"{source} has no tokenizer; expected tokenizer.json or one of "
            f"{', '.join(TOKENIZER_FILES[1:])}."
        )
    for name in names:
        shutil.copyfile(source / name, target / name)


def _special_ids(directory: pathlib.Path) -> dict[str, int]:
    """Ids of the end, start and padding token, as far as the tokenizer files name them."""
    config_file, vocabulary_file = (
        directory / name for name in ("tokenizer_config.json", "tokenizer.json")
    )
    if not config_file.exists() or not vocabulary_file.exists():
        return {}
    config = json.loads(config_file.read_text())
    ids = {t["content"]: t["id"] for t in json.loads(vocabulary_file.read_text())["added_tokens"]}
    special = {}
    for role in ("bos_token", "eos_token", "pad_token"):
        token = config[role] if role in config else None
        text = token["content"] if isinstance(token, dict) else token
        if text in ids:
            special[f"{role}_id"] = ids[text]
    return special


def _write_tensors(
    params: Params,
    config: DecoderConfig,
    directory: pathlib.Path,
    dtype: str,
    max_shard_bytes: int,
) -> None:
    """Writes the tensors to one file, or to several with an index; one file is held at a time."""
    stored_dtype = jnp.dtype(dtype)
    plan = [
        (name, path, layer)
        for path, _ in flat_items(params)
        for layer, name in enumerate(RULES[path].names(config.num_layers))
    ]
    files: list[list[tuple[str, Path, int]]] = [[]]
    free = max_shard_bytes
    for entry in plan:
        _, path, _ = entry
        leaf = _at(params, path)
        parts = config.num_layers if RULES[path].is_stacked else 1
        size = leaf.size // parts * stored_dtype.itemsize
        if size > free and files[-1]:
            files.append([])
            free = max_shard_bytes
        files[-1].append(entry)
        free -= size
    weight_map, total = {}, 0
    for i, entries in enumerate(files, 1):
        file_name = SINGLE_FILE
        if len(files) > 1:
            file_name = f"model-{i:05d}-of-{len(files):05d}.safetensors"
        tensors = {}
        for name, path, layer in entries:
            leaf = _at(params, path)
            value = np.asarray(leaf[layer] if RULES[path].is_stacked else leaf)
            tensors[name] = np.ascontiguousarray(RULES[path].to_stored(value).astype(stored_dtype))
            weight_map[name] = file_name
        total += sum(tensor.nbytes for tensor in tensors.values())
        # The metadata is what transformers asks of a file before it loads it.
        safetensors.numpy.save_file(tensors, directory / file_name, metadata={"format": "pt"})
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(directory / INDEX_FILE, index)


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def flat_items(tree: Params, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, leaf) of every leaf of a nested dictionary."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat_items(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def _at(tree: Params, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _insert(tree: Params, path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
