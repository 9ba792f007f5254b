"""Weights in and out: any source of tensors to the parameter tree, and the tree to Hugging Face."""

import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from agentgym_jax.models.config import DecoderConfig, to_hf_config
from agentgym_jax.models.hf_tensors import (
    INDEX_FILE,
    RULES,
    SINGLE_FILE,
    Path,
    Rule,
    SafetensorsDirectory,
    TensorSource,
)
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.sharding import Layout

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
        sharding = None if shardings is None else _at(shardings, path)
        _insert(params, path, _load_parameter(source, RULES[path], leaf.shape, dtype, sharding))
    return params


def _load_parameter(
    source: TensorSource,
    rule: Rule,
    shape: tuple[int, ...],
    dtype: str,
    sharding: jax.sharding.Sharding | None,
) -> jax.Array:
    """One parameter on its devices; without a sharding on the default one, uncommitted."""
    if sharding is None:
        indices = [(slice(None),) * len(shape)]
    else:
        indices = list(sharding.addressable_devices_indices_map(shape).values())
    shards = {
        bounds: np.empty([stop - start for start, stop in bounds], jnp.dtype(dtype))
        for bounds in {_bounds(index, shape) for index in indices}
    }
    for i, name in enumerate(rule.names(layers=shape[0])):
        if rule.is_stacked:
            targets = [
                (shard[i - layers[0]], inner)
                for (layers, *inner), shard in shards.items()
                if layers[0] <= i < layers[1]
            ]
        else:
            targets = [(shard, list(bounds)) for bounds, shard in shards.items()]
        if targets:
            part = rule.from_stored(source.read(name), rule.part_shape(shape))
            for target, bounds in targets:
                target[...] = part[tuple(slice(start, stop) for start, stop in bounds)]
    if sharding is None:
        (value,) = shards.values()
        return jax.device_put(value)
    return jax.make_array_from_callback(
        shape, sharding, lambda index: shards[_bounds(index, shape)]
    )


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Start and stop per axis: slices themselves cannot be keys on Python 3.11."""
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape, strict=True))


def check_tensors(source: TensorSource, abstract: Params, config: DecoderConfig) -> None:
    """Raises one ValueError that names all tensors that are missing, too many or misshapen."""
    found = source.shapes()
    expected = {}
    for path, leaf in flat_items(abstract):
        rule = RULES[path]
        shape = rule.stored_shape(rule.part_shape(leaf.shape))
        expected.update(dict.fromkeys(rule.names(config.num_layers), shape))
    missing = [name for name in expected if name not in found]
    unexpected = [
        name for name in found if name not in expected and not _is_redundant(name, source, config)
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


def _is_redundant(name: str, source: TensorSource, config: DecoderConfig) -> bool:
    """True for tensors that some exports store though they follow from the rest."""
    if name == "lm_head.weight":
        return config.tie_embeddings
    if name.endswith("self_attn.o_proj.bias"):
        return config.qkv_bias and not source.read(name).any()
    return name.endswith("rotary_emb.inv_freq")


def save_hf(
    params: Params,
    config: DecoderConfig,
    directory: str | pathlib.Path,
    *,
    dtype: str,
    tokenizer_files: str | pathlib.Path | None = None,
    as_llama: bool = False,
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
      as_llama: see `config.to_hf_config`.
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
        hf_config = to_hf_config(config, as_llama=as_llama)
        _write_json(new / "config.json", hf_config | {"torch_dtype": dtype} | special)
        if not (new / "generation_config.json").exists():
            _write_json(new / "generation_config.json", {"do_sample": True, **special})
        if as_llama and config.qkv_bias:
            params = _with_zero_output_bias(params, config)
        _write_tensors(params, config, new, dtype, max_shard_bytes)
        if target.exists():
            target.rename(pathlib.Path(temporary) / "old")
        new.rename(target)


def _with_zero_output_bias(params: Params, config: DecoderConfig) -> Params:
    """Returns the tree of an equal llama, which has a bias [L, D] after attention."""
    bias_LD = np.zeros((config.num_layers, config.hidden_size), np.float32)
    attention = params["layers"]["attention"] | {"o_bias": bias_LD}
    return params | {"layers": params["layers"] | {"attention": attention}}


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
    files = _plan_files(params, config, stored_dtype.itemsize, max_shard_bytes)
    weight_map, total_size = {}, 0
    for i, parts in enumerate(files, 1):
        file_name = SINGLE_FILE
        if len(files) > 1:
            file_name = f"model-{i:05d}-of-{len(files):05d}.safetensors"
        tensors = {}
        for name, path, layer in parts:
            leaf = _at(params, path)
            value = np.asarray(leaf[layer] if RULES[path].is_stacked else leaf)
            tensors[name] = np.ascontiguousarray(RULES[path].to_stored(value).astype(stored_dtype))
            weight_map[name] = file_name
            total_size += tensors[name].nbytes
        # The metadata is what transformers asks of a file before it loads it.
        safetensors.numpy.save_file(tensors, directory / file_name, metadata={"format": "pt"})
        # The library makes it readable by its owner alone; the rest of the export follows umask.
        (directory / file_name).chmod((directory / "config.json").stat().st_mode)
    if len(files) > 1:
        index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
        _write_json(directory / INDEX_FILE, index)


def _plan_files(
    params: Params, config: DecoderConfig, itemsize: int, max_shard_bytes: int
) -> list[list[tuple[str, Path, int]]]:
    """Per file the (tensor name, parameter path, layer) it holds, none above the limit."""
    files: list[list[tuple[str, Path, int]]] = [[]]
    free = max_shard_bytes
    for path, leaf in flat_items(params):
        names = RULES[path].names(config.num_layers)
        size = leaf.size // len(names) * itemsize
        for layer, name in enumerate(names):
            if size > free and files[-1]:  # a tensor above the limit gets a file of its own
                files.append([])
                free = max_shard_bytes
            files[-1].append((name, path, layer))
            free -= size
    return files


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
