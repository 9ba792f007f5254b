"""Adapters in directories of the library PEFT: adapter_config.json and adapter_model.safetensors.

PEFT stores A of one layer as [rank, in] and B as [out, rank], with the names of Hugging Face's
modules.
"""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax.traverse_util import flatten_dict, unflatten_dict

from agentgym_jax.models.hf_tensors import RULES
from agentgym_jax.models.lora import TARGETS, Adapters, Params, adapter_path
from agentgym_jax.models.policy import Policy

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Options of PEFT that change the function of the adapters, with the values that are supported.
_PLAIN = {
    "use_dora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "fan_in_fan_out": False,
    "layers_to_transform": None,
    "modules_to_save": None,
    "bias": "none",
    "lora_bias": False,
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
    """Returns the `adapter_config.json` of a directory, after checking its options."""
    path = directory / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); restore it") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ValueError(f"{path}: peft_type must be LORA, got {config!r:.80}")
    for name, plain in _PLAIN.items():
        if config.get(name, plain) not in (plain, None):
            raise ValueError(
                f"{path}: {name}={config[name]!r} is not supported, only {plain!r}. Merge the "
                "adapters with PEFT (merge_and_unload) and use the merged model"
            )
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
    tensors = safetensors.numpy.load_file(path)
    names = config["target_modules"]
    modules = {target: _module(target) for target in TARGETS}
    targets = tuple(
        t for t in TARGETS if any(modules[t] in name for name in tensors if "lora_A" in name)
    )
    rank = int(config["r"])
    alpha = float(config["lora_alpha"])
    if config.get("use_rslora"):
        alpha *= rank**0.5
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), rank, alpha, targets)
    expected = _stored_shapes(adapters, policy.config.num_layers)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != {name: shape for name, (_, _, shape) in expected.items()} or not targets:
        wrong = sorted(set(found.items()) ^ {(n, s) for n, (_, _, s) in expected.items()})[:4]
        raise ValueError(
            f"{path} does not fit the model: {wrong or 'no adapter of a known kernel'} "
            f"(target_modules={names}, r={rank}). Known kernels: {', '.join(modules.values())}"
        )
    params = {
        path: np.empty(x.shape, np.float32)
        for path, x in flatten_dict(adapters.abstract_params()).items()
    }
    for name, (place, layer, _) in expected.items():
        part = params[place][layer]
        part[...] = tensors[name].astype(np.float32).T.reshape(part.shape)
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
