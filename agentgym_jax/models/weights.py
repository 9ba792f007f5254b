"""Loading of Hugging Face weights into the parameter tree, and export of the tree."""

import json
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import huggingface_hub
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax.traverse_util import flatten_dict, unflatten_dict

from agentgym_jax.mesh.sharding import Layout, put
from agentgym_jax.models.config import DecoderConfig, to_hf_config
from agentgym_jax.models.hf_tensors import (
    INDEX_FILE,
    Rule,
    StoredTensor,
    find_decoder_tensors,
    get_rules,
)
from agentgym_jax.models.policy import Params, Policy

MAX_SHARD_BYTES = 5 * 10**9  # default of huggingface_hub
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
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
    """Loads the weights of a Hugging Face directory onto the devices of the layout.

    Parameters are loaded one by one. In addition to the loaded parameters, the host therefore needs
    memory for only one parameter at a time. Errors are those of `check_tensors`.
    """
    tensors = check_tensors(directory, policy)
    shardings = flatten_dict(policy.param_shardings(layout) or {})
    params, rules = {}, get_rules(policy.config)
    for path, leaf in flatten_dict(policy.abstract_params()).items():
        rule = rules[path]
        value = np.empty(leaf.shape, jnp.dtype(dtype))
        parts = value if rule.is_stacked else value[None]
        for part, name in zip(parts, rule.names(len(parts)), strict=True):
            part[...] = rule.from_stored(tensors[name].read(), part.shape)
        params[path] = put(value, shardings[path] if layout else None)
    return unflatten_dict(params)


def check_tensors(directory: str | pathlib.Path, policy: Policy) -> dict[str, StoredTensor]:
    """Returns the tensors of a Hugging Face directory by name, after checking names and shapes.

    Raises:
      ValueError: Tensors are missing, unexpected, wrongly shaped or quantised, a file is truncated,
        or a model with tied embeddings has another output head.
      FileNotFoundError: A file is missing.
    """
    config = policy.config
    tensors = find_decoder_tensors(pathlib.Path(directory), config)
    expected, rules = {}, get_rules(config)
    for path, leaf in flatten_dict(policy.abstract_params()).items():
        rule = rules[path]
        shape = rule.stored_shape(leaf.shape[1:] if rule.is_stacked else leaf.shape)
        expected.update(dict.fromkeys(rule.names(leaf.shape[0]), shape))
    problems = {
        "missing": [name for name in expected if name not in tensors],
        "unexpected": [
            name
            for name, tensor in tensors.items()
            if name not in expected and not _is_redundant(tensor, config)
        ],
        "wrongly shaped": [
            f"{name} is {tensors[name].shape}, expected {shape}"
            for name, shape in expected.items()
            if name in tensors and tensors[name].shape != shape
        ],
    }
    described = [
        f"{len(names)} {problem}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
        for problem, names in problems.items()
        if names
    ]
    if described:
        raise ValueError(
            f"{directory} does not hold the tensors of its configuration "
            f"({config.num_layers} layers, tie_embeddings={config.tie_embeddings}, "
            f"qkv_bias={config.qkv_bias}, qk_norm={config.qk_norm}). {'; '.join(described)}. "
            "Check that config.json belongs to these weights."
        )
    head = tensors.get(_HEAD)
    if config.tie_embeddings and head is not None and not head.equals(tensors[_EMBEDDING]):
        raise ValueError(
            f"{directory}: config.json has tie_word_embeddings=True, but {_HEAD} differs from "
            f"{_EMBEDDING}. If the model has its own output head, set tie_word_embeddings to false"
        )
    return tensors


def _is_redundant(tensor: StoredTensor, config: DecoderConfig) -> bool:
    """Returns True for a tensor that some exports store and the decoder does not need."""
    if tensor.name == _HEAD:
        return config.tie_embeddings
    if tensor.name.endswith("self_attn.o_proj.bias"):
        return config.qkv_bias and not tensor.read().any()
    return tensor.name.endswith("rotary_emb.inv_freq")


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
    sees a partial export. An export above `max_shard_bytes` has several safetensors files and an
    index. `tokenizer_files` is a directory with tokenizer files to copy. `overwrite` replaces an
    earlier export. `as_llama` is that of `to_hf_config`.

    Raises:
      FileExistsError: The directory is not empty, and `overwrite` is False or the directory is no
        earlier export.
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
        leaves = flatten_dict(params)
        if as_llama and config.qkv_bias:  # a bias that only Llama has
            bias_LD = np.zeros((config.num_layers, config.hidden_size), np.float32)
            leaves["layers", "attention", "o_bias"] = bias_LD
        _write_tensors(leaves, get_rules(config), new, dtype, max_shard_bytes)
        if target.exists():
            target.rename(pathlib.Path(temporary) / "old")
        new.rename(target)


def check_target(
    target: pathlib.Path,
    overwrite: bool,
    files: Sequence[str] = ("config.json", "*.safetensors"),
) -> None:
    """Raises FileExistsError unless an export may write to `target`.

    An earlier export, which `overwrite` replaces, has files of all patterns `files`.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(f"{target} exists. Choose another --out, or pass --overwrite.")
    if not all(any(target.glob(name)) for name in files):
        raise FileExistsError(
            f"{target} is no earlier export (it does not have {' and '.join(files)}), so it is not "
            "replaced. Choose another --out, or remove it yourself."
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
    config_file, vocabulary_file = directory / "tokenizer_config.json", directory / "tokenizer.json"
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
    leaves: Mapping[tuple[str, ...], Any],
    rules: Mapping[tuple[str, ...], Rule],
    directory: pathlib.Path,
    dtype: str,
    max_shard_bytes: int,
) -> None:
    """Writes one file, or several with an index; the host has the tensors of one file at a time."""
    tensors = {}  # (rule, parameter, layer) of each tensor by name
    for path, leaf in leaves.items():
        rule = rules[path]
        for layer, name in enumerate(rule.names(len(leaf))):
            tensors[name] = rule, leaf, layer
    itemsize = jnp.dtype(dtype).itemsize

    def size(tensor):
        rule, leaf, _ = tensor
        return leaf.size * itemsize // (len(leaf) if rule.is_stacked else 1)

    split = huggingface_hub.split_state_dict_into_shards_factory(
        tensors,
        get_storage_size=size,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_bytes,
    )
    for file_name, names in split.filename_to_tensors.items():
        stored = {}
        for name in names:
            rule, leaf, layer = tensors[name]
            value = np.asarray(leaf[layer] if rule.is_stacked else leaf)
            stored[name] = np.ascontiguousarray(rule.to_stored(value).astype(jnp.dtype(dtype)))
        # transformers requires this metadata before it loads a file.
        safetensors.numpy.save_file(stored, directory / file_name, metadata={"format": "pt"})
        # safetensors makes the file readable by its owner only, while the mode of other exported
        # files follows umask.
        (directory / file_name).chmod((directory / "config.json").stat().st_mode)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        _write_json(directory / INDEX_FILE, index)


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")
