"""Loading and saving of weights: from any source of tensors to the parameter tree, and from the
tree to Hugging Face.
"""

import json
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax.traverse_util import flatten_dict, unflatten_dict

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

MAX_SHARD_BYTES = 5 * 10**9  # limit of Hugging Face's exports
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
    """Loads the parameters of a Hugging Face directory: `model.safetensors`, or several files with
    an index.

    Raises:
      ValueError: Tensors are missing, unexpected or wrongly shaped, or a file is truncated.
      FileNotFoundError: A file is missing.
    """
    return assemble(SafetensorsDirectory(directory), policy, layout, dtype)


def assemble(
    source: TensorSource, policy: Policy, layout: Layout | None = None, dtype: str = "float32"
) -> Params:
    """Builds the parameter tree one parameter at a time; reads every tensor once.

    Parameters get the type `dtype` and are placed directly on the devices of the layout, or on the
    default device. Host memory is little more than the finished parameters plus the largest single
    one. Only the slices for this process's devices are filled, transferred and released.
    """
    abstract = policy.abstract_params()
    check_tensors(source, abstract, policy.config)
    shardings = flatten_dict(policy.param_shardings(layout) or {})
    return unflatten_dict(
        {
            path: _load_parameter(source, RULES[path], leaf.shape, dtype, shardings.get(path))
            for path, leaf in flatten_dict(abstract).items()
        }
    )


def _load_parameter(
    source: TensorSource,
    rule: Rule,
    shape: tuple[int, ...],
    dtype: str,
    sharding: jax.sharding.Sharding | None,
) -> jax.Array:
    """Places one parameter on its devices; without a sharding, uncommitted on the default device."""
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
    """Returns the start and stop of each axis, because slices cannot be keys on Python 3.11."""
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape, strict=True))


def check_tensors(source: TensorSource, abstract: Params, config: DecoderConfig) -> None:
    """Raises one ValueError that names all missing, unexpected and wrongly shaped tensors."""
    found = source.shapes()
    expected = {}
    for path, leaf in flatten_dict(abstract).items():
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
    groups = {"missing": missing, "unexpected": unexpected, "wrongly shaped": misshapen}
    problems = [
        f"{len(names)} {what}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
        for what, names in groups.items()
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
    """Returns True for a tensor that some exports store although its content follows from other
    tensors.
    """
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

    The directory is written under a temporary name and renamed when complete, so a reader never
    sees a partial export.

    The parameters may be sharded over the devices of this process. `dtype` is the type of the stored
    tensors. The directory `tokenizer_files` has the tokenizer files to copy, and `overwrite`
    replaces an earlier export. A checkpoint of more than `max_shard_bytes` is split into several
    files with an index.

    Raises:
      FileExistsError: The directory exists, and `overwrite` is False or the directory is no earlier
        export.
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
    """Returns the parameters of the equivalent llama, with a bias of zeros [L, D] after attention."""
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
            f"{target} is no earlier export (it has no config.json next to its safetensors), so it is "
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
    """Returns the ids of the end, start and padding tokens named in the tokenizer files."""
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
    """Writes the tensors to one file, or to several with an index; only one file's tensors are in
    memory at a time.
    """
    stored_dtype = jnp.dtype(dtype)
    leaves = flatten_dict(params)
    files = _plan_files(leaves, config, stored_dtype.itemsize, max_shard_bytes)
    weight_map, total_size = {}, 0
    for i, parts in enumerate(files, 1):
        file_name = SINGLE_FILE
        if len(files) > 1:
            file_name = f"model-{i:05d}-of-{len(files):05d}.safetensors"
        tensors = {}
        for name, path, layer in parts:
            leaf = leaves[path]
            value = np.asarray(leaf[layer] if RULES[path].is_stacked else leaf)
            tensors[name] = np.ascontiguousarray(RULES[path].to_stored(value).astype(stored_dtype))
            weight_map[name] = file_name
            total_size += tensors[name].nbytes
        # transformers requires this metadata before it loads a file.
        safetensors.numpy.save_file(tensors, directory / file_name, metadata={"format": "pt"})
        # The library makes the file readable by its owner only, while the mode of other exported
        # files follows umask.
        (directory / file_name).chmod((directory / "config.json").stat().st_mode)
    if len(files) > 1:
        index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
        _write_json(directory / INDEX_FILE, index)


def _plan_files(
    leaves: Mapping[Path, Any], config: DecoderConfig, itemsize: int, max_shard_bytes: int
) -> list[list[tuple[str, Path, int]]]:
    """Returns for each file its (tensor name, parameter path, layer) entries.

    Only a file with a single tensor may exceed the limit.
    """
    files: list[list[tuple[str, Path, int]]] = [[]]
    free = max_shard_bytes
    for path, leaf in leaves.items():
        names = RULES[path].names(config.num_layers)
        size = leaf.size // len(names) * itemsize
        for layer, name in enumerate(names):
            if size > free and files[-1]:  # a tensor above the limit gets a separate file
                files.append([])
                free = max_shard_bytes
            files[-1].append((name, path, layer))
            free -= size
    return files


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")
