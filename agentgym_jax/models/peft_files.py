"""Adapters in directories of the library PEFT: adapter_config.json and adapter_model.safetensors.

PEFT stores A of one layer as [rank, in] and B as [out, rank], with the names of Hugging Face's
modules.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax.traverse_util import flatten_dict, unflatten_dict

from agentgym_jax.checks import limits
from agentgym_jax.checks.limits import Range
from agentgym_jax.models.hf_tensors import RULES, read_header
from agentgym_jax.models.lora import TARGETS, Adapters, Params, adapter_path
from agentgym_jax.models.policy import Policy

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Options that do not change the function of stored adapters. They concern training, name the base,
# or have an effect only together with an option that is refused.
_FREE = {
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_rslora",
}
# Supported values of other options. The initialisations change the adapters only; those that change
# the base too (PiSSA, OLoRA, CorDA, LoftQ) give adapters that fit the changed base only. An option
# that is not listed must be off.
_SUPPORTED: Mapping[str, Sequence[Any]] = {
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "bias": ("none",),
    "revision": ("main",),
}
_OFF: Sequence[Any] = (None, False, "", [], {})
_FIELDS: Mapping[str, Any] = {
    "base_model_name_or_path": str | None,
    "r": Annotated[int, Range(1, 2**16)],
    "lora_alpha": Annotated[float, Range(above=0)],
    "use_rslora": bool | None,
}


@dataclasses.dataclass(frozen=True)
class PeftAdapters:
    """Adapters read from a directory."""

    adapters: Adapters
    params: Params


def is_peft(directory: pathlib.Path) -> bool:
    """Returns True for a directory of adapters."""
    return (directory / CONFIG_FILE).is_file()


def read_config(directory: pathlib.Path) -> dict[str, Any]:
    """Returns the `adapter_config.json` of a directory, after checking its options.

    Raises:
      ValueError: An option is missing, invalid, or changes the adapters in a way that is not supported.
    """
    path = directory / CONFIG_FILE
    config = limits.read_object(path, _FIELDS)
    if config.get("peft_type") != "LORA":
        raise ValueError(
            f"{path}: peft_type={limits.shorten(config.get('peft_type'))}: expected LORA"
        )
    for name, value in config.items():
        allowed = (*_SUPPORTED.get(name, ()), *_OFF)
        if name not in _FREE and not any(value == x and type(value) is type(x) for x in allowed):
            raise ValueError(
                f"{path}: {name}={limits.shorten(value)} is not supported. Merge the adapters with "
                "PEFT (merge_and_unload) and use the merged model"
            )
    missing = [name for name in ("r", "lora_alpha") if name not in config]
    if missing:
        raise ValueError(f"{path} lacks {' and '.join(missing)}")
    return config


def load(directory: pathlib.Path, policy: Policy) -> PeftAdapters:
    """Loads the adapters of a directory for a policy.

    Raises:
      ValueError: The adapters do not fit the policy, or use unsupported options.
      FileNotFoundError: The file of the weights is missing.
    """
    config = read_config(directory)
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{directory} has no {WEIGHTS_FILE}")
    stored = {tensor.name: tensor for tensor in read_header(path)}
    modules = {target: _module(target) for target in TARGETS}
    targets = tuple(
        t for t in TARGETS if any(modules[t] in name for name in stored if "lora_A" in name)
    )
    rank, alpha = config["r"], float(config["lora_alpha"])
    if config.get("use_rslora"):
        alpha *= rank**0.5
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), rank, alpha, targets)
    expected = _stored_shapes(adapters, policy.config.num_layers)
    found = {name: tensor.shape for name, tensor in stored.items()}
    wanted = {name: shape for name, (_, _, shape) in expected.items()}
    if found != wanted or not targets:
        raise ValueError(
            f"{path} does not fit the model (r={rank}): {_describe_misfit(found, wanted, modules)}"
        )
    params = {
        path: np.empty(x.shape, np.float32)
        for path, x in flatten_dict(adapters.abstract_params()).items()
    }
    for name, (place, layer, _) in expected.items():
        part = params[place][layer]
        part[...] = stored[name].read().astype(np.float32).T.reshape(part.shape)
    return PeftAdapters(adapters, jax.tree.map(jnp.asarray, unflatten_dict(params)))


def save(
    directory: pathlib.Path, adapters: Adapters, params: Params, *, base: str, dtype: str
) -> None:
    """Writes adapters to a directory that exists; `base` is the path or hub id of their base."""
    flat = flatten_dict(jax.tree.map(np.asarray, params))
    num_layers = len(next(iter(flat.values())))
    tensors = {
        name: np.ascontiguousarray(
            flat[place][layer].reshape(shape[::-1]).T.astype(jnp.dtype(dtype))
        )
        for name, (place, layer, shape) in _stored_shapes(adapters, num_layers).items()
    }
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": 0.0,
        "target_modules": [_module(target) for target in adapters.targets],
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    safetensors.numpy.save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    path = directory / CONFIG_FILE
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (directory / WEIGHTS_FILE).chmod(path.stat().st_mode)


def _describe_misfit(
    found: Mapping[str, Sequence[int]],
    wanted: Mapping[str, Sequence[int]],
    modules: Mapping[str, str],
) -> str:
    """Describes the first tensor of adapters that differs from the expected ones."""
    for name, shape in found.items():
        if name not in wanted:
            return f"the model has no kernel for {name}; it adapts {', '.join(modules.values())}"
        if shape != wanted[name]:
            return f"{name} has shape {shape}, expected {wanted[name]}"
    lacking = [name for name in wanted if name not in found]
    return f"{lacking[0]} is missing" if lacking else "it holds no adapter of a known kernel"


def _module(target: str) -> str:
    """Returns Hugging Face's name of a kernel, such as `q_proj`."""
    rules = [rule for path, rule in RULES.items() if path[-1] == f"{target}_kernel"]
    return rules[0].name.split(".")[-2]


def _stored_shapes(
    adapters: Adapters, num_layers: int
) -> dict[str, tuple[tuple[str, ...], int, tuple[int, ...]]]:
    """Returns the path, layer and stored shape of every matrix, by its stored name."""
    shapes = flatten_dict(adapters.abstract_params())
    found = {}
    for path, rule in RULES.items():
        if adapter_path(path, "a") not in shapes:
            continue
        for layer, name in enumerate(rule.names(num_layers)):
            module = _PREFIX + name.removesuffix(".weight")
            for side in "ab":
                place = adapter_path(path, side)
                _, *shape = shapes[place].shape
                matrix = (shape[-1], -1) if side == "a" else (-1, shape[0])
                stored = np.empty(shape, bool).reshape(matrix[::-1]).T.shape
                found[f"{module}.lora_{side.upper()}.weight"] = place, layer, stored
    return found
