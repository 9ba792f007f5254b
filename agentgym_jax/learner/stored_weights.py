"""Weights of every kind of source, with merged adapters; the file that names the base of adapters."""

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
from absl import logging

from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models import lora, peft_files, sources
from agentgym_jax.models.lora import Adapters
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.runs.atomic_files import write_atomic

ADAPTERS_FILE = "adapters.json"
_FINGERPRINT_BYTES = 1024 * 1024  # number of bytes hashed at the start and at the end of every file


def make_adapters(policy: Policy, *, rank: int, alpha: float, targets: tuple[str, ...]) -> Adapters:
    """Returns the adapters of a policy's kernels."""
    return Adapters(policy.abstract_params(), policy.logical_axes(), rank, alpha, targets)


def abstract_params(network: Policy | Adapters, layout: Layout | None) -> Params:
    """Returns the shapes of weights, with their shardings in a layout."""
    shapes = network.abstract_params()
    if layout is None:
        return shapes
    return jax.tree.map(lambda x, s: x.update(sharding=s), shapes, network.param_shardings(layout))


def load(
    source: ModelSource, policy: Policy, layout: Layout | None = None, *, seed: int = 0
) -> Params:
    """Loads float32 weights of any source; adapters are merged into their base.

    Raises:
      CheckpointError: The run folder has no complete checkpoint, or a damaged one.
      ValueError, OSError: Errors of `sources.load_params`, or the base of adapters has changed.
    """
    if source.kind == "peft_dir":
        found = peft_files.load(source.folder, policy)
        assert source.base is not None, "adapters have a base"
        base = load(source.base, policy, layout, seed=seed)
        return _merge(found.adapters, base, found.params, layout)
    if source.kind != "workdir":
        return sources.load_params(source, policy, layout, seed=seed)
    adapters, trained = load_adapters(source, policy, layout)
    if adapters is None:
        return trained
    return _merge(adapters, load_base(source, policy, layout), trained, layout)


def load_adapters(
    source: ModelSource, policy: Policy, layout: Layout | None = None
) -> tuple[Adapters | None, Params]:
    """Returns the adapters of a run folder, or None, and the newest weights that the run trained."""
    adapters = None
    if (facts := _read_facts(source.folder)) is not None:
        options = {name: facts[name] for name in ("rank", "alpha")}
        adapters = make_adapters(policy, **options, targets=tuple(facts["targets"]))
    with Checkpoints(source.checkpoints, max_to_keep=1, read_only=True) as checkpoints:
        step = checkpoints.latest_step()
        if step is None:
            raise CheckpointError(
                f"{source.model} has no complete checkpoint yet: let the run reach its first save"
            )
        logging.info("loading step %d of %s", step, source.model)
        return adapters, checkpoints.restore_params(
            step, abstract_params(adapters or policy, layout)
        )


def base_source(source: ModelSource) -> ModelSource | None:
    """Returns the weights that adapters, of a run or a directory, change; None for a model without
    adapters, or for random weights.

    Raises:
      FileNotFoundError, ValueError: These weights are not found, or have changed since the run.
    """
    if source.kind != "workdir":
        return source.base
    facts = _read_facts(source.folder)
    if facts is None or facts["base"]["kind"] == "random":
        return None
    try:
        base = sources.resolve(facts["base"]["name"])
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(
            f"the base of the adapters of {source.model} is needed, and a relative path is read from "
            f"the current folder, as in training: {error}"
        ) from error
    if fingerprint(base) != facts["base"]:
        raise ValueError(
            f"the adapters of {source.model} belong to the weights of {facts['base']}, but "
            f"{base.model} now has {fingerprint(base)}: put the old weights back"
        )
    return base


def load_base(source: ModelSource, policy: Policy, layout: Layout | None = None) -> Params:
    """Loads the weights that a run with adapters froze, rounded like in the run, as float32."""
    base, facts = base_source(source), _read_facts(source.folder)
    assert facts is not None, f"{source.model} has no adapters"
    if base is None:
        params = policy.init_sharded(jax.random.key(facts["base"]["seed"]), layout)
    else:
        params = load(base, policy, layout, seed=facts["base"].get("seed", 0))
    rounded = Policy(policy.config, dtype=facts["dtype"]).cast_params(params)
    return jax.tree.map(lambda x, like: x.astype(like.dtype), rounded, policy.abstract_params())


def fingerprint(source: ModelSource) -> dict[str, Any]:
    """Returns facts that identify weights: the step of a checkpoint, or a hash of the files."""
    facts: dict[str, Any] = {"name": source.model, "kind": source.kind}
    if source.path is None:
        return facts
    if source.kind == "workdir":
        with Checkpoints(source.checkpoints, max_to_keep=1, read_only=True) as found:
            return facts | {"step": found.latest_step()}
    paths = [source.path] if source.path.is_file() else sorted(source.path.glob("*.safetensors"))
    hashed = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        hashed.update(f"{path.name} {size}\n".encode())
        with open(path, "rb") as file:
            hashed.update(file.read(_FINGERPRINT_BYTES))
            file.seek(max(0, size - _FINGERPRINT_BYTES))
            hashed.update(file.read())
    return facts | {"weights": hashed.hexdigest()[:16]}


def record_adapters(
    directory: pathlib.Path, adapters: Adapters, source: ModelSource | None, dtype: str, seed: int
) -> None:
    """Writes the facts that `load` needs to `model/adapters.json` of a run folder.

    Raises:
      ValueError: The run began with another base.
    """
    base = {"name": "", "kind": "random"} if source is None else fingerprint(source)
    facts = {
        "rank": adapters.rank,
        "alpha": adapters.alpha,
        "targets": list(adapters.targets),
        "dtype": dtype,
        "base": base | {"seed": seed} if source is None or source.path is None else base,
    }
    record_once(directory / ADAPTERS_FILE, facts)


def record_once(path: pathlib.Path, facts: Mapping[str, Any]) -> None:
    """Writes facts about weights to a file of a run folder when the run begins.

    Raises:
      ValueError: The file has other facts, because the weights have changed since then.
    """
    if not path.exists():
        write_atomic(path, json.dumps(facts, indent=2) + "\n")
    elif (found := json.loads(path.read_text())) != facts:
        raise ValueError(
            f"the run began with {found}, which is now {facts}: put the old weights back, or start "
            "with another --workdir"
        )


def _read_facts(folder: pathlib.Path) -> dict[str, Any] | None:
    path = folder / "model" / ADAPTERS_FILE
    return json.loads(path.read_text()) if path.exists() else None


def _merge(adapters: Adapters, base: Params, trained: Params, layout: Layout | None) -> Params:
    if layout is not None:
        trained = jax.device_put(trained, adapters.param_shardings(layout))
    return lora.merge(adapters.attach(base, trained))
