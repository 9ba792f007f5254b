"""Programs that an RL run calls, traced for devices that are not present."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from agentgym_jax.config.model import build_adapters
from agentgym_jax.config.sections import ConfigError, call
from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.jobs.sampled_agents import count_process_rows
from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.stored_weights import abstract_params
from agentgym_jax.mesh.sharding import (
    DECODE_RULES,
    TRAIN_RULES,
    Layout,
    make_layouts,
    make_mesh,
    spread_layout,
    tracing_for,
)
from agentgym_jax.models import lora, sources
from agentgym_jax.models.attention import BLOCK, MAX_BLOCKS
from agentgym_jax.models.config import PRESETS, DecoderConfig
from agentgym_jax.models.decode_backend import DecodeBackend, SplitLayers, choose_backend
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Params, Policy, make_sampler_params
from agentgym_jax.planning.topology import PlanError
from agentgym_jax.rl.build import check_micro_rows, make_learner
from agentgym_jax.rl.rl_config import RLSettings, policy_updates
from agentgym_jax.sampling import decode, drafts
from agentgym_jax.sampling.options import check_buckets, default_buckets
from agentgym_jax.sampling.row_cache import COPIED_SLOTS
from agentgym_jax.text.tokenizer import byte_tokenizer

# Share of the tokens of an episode that the policy samples; the others are observations.
ACTION_SHARE = 0.25
_HUB_QWEN = re.compile(r"Qwen/Qwen(2\.5|3)-([\d.]+)B(-Instruct)?")


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled program of a run.

    Attributes:
      traced: Traced program; `lower` and `compile` work without the devices.
      calls: Calls per training step if every episode has `sampling.max_tokens` tokens.
      trips: Number of iterations of loops, by the `jax.named_scope` around the loop.
      freed: Purposes of the resident arrays that do not exist while the program runs.
      extra: Bytes per chip of arguments that exist only until the program ends.
      num_devices: Number of devices that execute the program.
    """

    name: str
    traced: jax.stages.Traced
    calls: float
    trips: Mapping[str, float]
    freed: tuple[str, ...] = ()
    extra: int = 0
    num_devices: int = 1


@dataclasses.dataclass(frozen=True)
class Programs:
    """All programs of a run and the arrays that outlive their calls.

    Attributes:
      programs: Programs in the order of a training step.
      residents: Bytes per chip of these arrays, by purpose.
    """

    programs: Sequence[Program]
    residents: Mapping[str, int]


def get_decoder_config(settings: RLSettings) -> DecoderConfig:
    """Returns the shape of the model; a hub id of Qwen needs no download."""
    model = settings.model
    if model.source == "random":
        vocab_size = settings.tokenizer.vocab_size or byte_tokenizer().vocab_size
        return call(DecoderConfig, "model.architecture", model.architecture, vocab_size=vocab_size)
    hub = _HUB_QWEN.fullmatch(model.source)
    preset = f"qwen{hub.group(1)}-{hub.group(2)}b" if hub else ""
    if preset in PRESETS:
        return PRESETS[preset]
    return sources.find(model.source).config


def _unsupported(settings: RLSettings, config: DecoderConfig) -> list[str]:
    """Returns one line that lists the needs of a plan which the config does not meet, if any."""
    needs = [
        (settings.reference is not None, "the initial policy as the reference"),
        (not settings.model.decodes_merged, "model.lora.decode='merged'"),
        (settings.critic is not None, "algorithms without a critic, such as grpo or rloo"),
        (config.hybrid is not None, "models without gated delta nets (not Qwen3.5)"),
    ]
    supported = ", ".join(need for is_needed, need in needs if is_needed)
    return [f"plans support only {supported}"] if supported else []


def _indivisible(settings: RLSettings, layout: Layout, decode_layout: Layout) -> list[str]:
    """Returns the refusals of rows that the devices cannot divide."""
    found = []
    for check in (
        lambda: check_micro_rows(settings.learner.micro_rows, layout),
        lambda: _process_rows(settings, layout, decode_layout.shards("batch")),
    ):
        try:
            check()
        except ConfigError as error:
            found.append(str(error))
    return found


def _process_rows(settings: RLSettings, layout: Layout, shards: int) -> tuple[int, int]:
    """Returns the cache rows and the episodes of one process."""
    num_processes = len({device.process_index for device in layout.mesh.devices.flat})
    episodes = -(-settings.rollout.tasks_per_step // num_processes) * settings.rollout.group_size
    rows = count_process_rows(settings.sampler["rows"], episodes, shards, num_processes)
    return rows, episodes


def make_programs(
    settings: RLSettings,
    mesh_options: Mapping[str, int],
    devices: Sequence[jax.Device],
    host_devices: Sequence[jax.Device],
) -> Programs:
    """Traces every program of a run with the objects that the run itself uses.

    `mesh_options` is the section `mesh`. The devices are descriptions, of all devices and of as many as
    one process has.

    Raises:
      PlanError: Plans do not support something in the config yet; the message lists everything.
    """
    config = get_decoder_config(settings)
    here = devices[0].process_index
    layout, decode_layout = call(
        make_layouts, "mesh", mesh_options, devices=devices, process_index=here
    )
    if layout is None or decode_layout is None:
        mesh = make_mesh(data=1, fsdp=1, tensor=1, devices=devices)
        layout, decode_layout = Layout(mesh, TRAIN_RULES), Layout(mesh, DECODE_RULES)
    if needed := [*_unsupported(settings, config), *_indivisible(settings, layout, decode_layout)]:
        raise PlanError("; ".join(needed))
    with tracing_for(devices[0].platform):
        learner = _trace_learner(settings, config, layout)
        # Its programs are the same in all processes.
        sampler = _trace_sampler(settings, config, layout, _move(decode_layout, host_devices))
        reshard = _trace_reshard(settings, config, layout, decode_layout)
    own = [dataclasses.replace(p, num_devices=len(host_devices)) for p in sampler.programs]
    all_ = [dataclasses.replace(p, num_devices=len(devices)) for p in (reshard, *learner.programs)]
    return Programs(
        programs=[all_[0], *own, *all_[1:]],
        residents={**learner.residents, **sampler.residents},
    )


def _move(layout: Layout, devices: Sequence[jax.Device]) -> Layout:
    """Returns the layout on other devices."""
    grid = np.asarray(devices).reshape(layout.mesh.devices.shape)
    mesh = Mesh(grid, layout.mesh.axis_names, axis_types=layout.mesh.axis_types)
    return Layout(mesh, layout.rules)


def _trace_reshard(
    settings: RLSettings, config: DecoderConfig, layout: Layout, decode_layout: Layout
) -> Program:
    """Traces the program that gives new weights to all samplers; their caches do not exist yet."""
    policy = settings.model.decode_policy(config, decode_layout)
    spread = policy.abstract_sampler_params(spread_layout(layout, decode_layout))
    convert = make_sampler_params(jax.tree.map(lambda x: x.sharding, spread))
    adapters = build_adapters(settings.model, policy)
    params = abstract_params(policy, layout)
    if adapters is not None:
        learner = Policy(config, dtype=settings.model.dtype, layout=layout)
        trained = abstract_params(adapters, layout)
        params = adapters.attach(_cast_abstract(learner, params), trained)
    name = "reshard" if adapters is None else "merge"
    return Program(name, convert.trace(policy, params), 1.0, {}, freed=("cache",))


def count_bytes(tree: Any) -> int:
    """Returns the bytes of a tree of abstract arrays on one chip."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)
    )


def _trace_learner(settings: RLSettings, config: DecoderConfig, layout: Layout) -> Programs:
    policy = settings.model.train_policy(config, layout)
    optimizer = make_optimizer(**settings.optimizer, total_steps=policy_updates(settings))
    adapters = build_adapters(settings.model, policy)
    update, score = make_learner(settings, policy, optimizer, layout, adapters=adapters)
    B, T = settings.learner.micro_rows, settings.learner.row_length
    episodes = settings.rollout.tasks_per_step * settings.rollout.group_size
    M = -(-episodes // (settings.learner.mini_batches * B))
    state = train_state.abstract_state(adapters or policy, optimizer, layout)
    base = None
    if adapters is not None:
        base = _cast_abstract(policy, abstract_params(policy, layout))
    replicated = jax.NamedSharding(layout.mesh, jax.sharding.PartitionSpec())
    limit = jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated)
    blocks = -(-T // max(BLOCK, -(-T // MAX_BLOCKS)))
    trips = {
        "micro_batches": M,
        # A causal row of one episode computes half of the blocks.
        "key_blocks": (blocks + 1) / 2,
        "logit_chunks": math.ceil(ACTION_SHARE * B * T / settings.logprob_chunk),
    }
    updates = settings.learner.mini_batches * settings.learner.epochs
    # A rollout that runs during the update needs the sampler's arrays.
    freed = () if settings.rollout.max_off_policy_steps else ("decode weights", "cache")
    micro_batches = M * settings.learner.mini_batches
    reference = state.params if adapters is not None else _cast_abstract(policy, state.params)
    scored = {}
    if settings.algorithm.needs_scores:
        scored["score"] = lora.attach(adapters, base, state.params)
    if settings.needs_reference:
        scored["score reference"] = lora.attach(adapters, base, reference)
    programs = []
    for name, params in scored.items():
        traced = score.trace(params, _abstract_batch((B, T), layout))
        programs.append(Program(name, traced, float(micro_batches), trips, freed))
    traced = update.trace(
        state, _abstract_batch((M, B, T), layout), limit, base=base, gap_limit=limit
    )
    programs.append(Program("update", traced, updates, trips, freed))
    residents = {
        "weights": count_bytes((state.params, base)),
        "moments": count_bytes(state.opt_state),
        "reference": count_bytes(reference) if settings.needs_reference else 0,
    }
    num_stale = settings.rollout.max_off_policy_steps
    if adapters is not None and num_stale:
        residents["stale weights"] = num_stale * count_bytes(state.params)
    return Programs(programs, residents)


def _cast_abstract(policy: Policy, params: Params) -> Params:
    """Returns the shapes and shardings of `Policy.cast_params`."""
    return jax.tree.map(
        lambda x, cast: jax.ShapeDtypeStruct(x.shape, cast.dtype, sharding=x.sharding),
        params,
        jax.eval_shape(policy.cast_params, params),
    )


def _abstract_batch(shape: tuple[int, ...], layout: Layout) -> TokenBatch:
    axes = (None,) * (len(shape) - 2) + ("batch", "length")
    sharding = layout.sharding(axes, shape)
    empty = batching.pack([], row_length=1, rows_multiple=1)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(shape, x.dtype, sharding=sharding), empty)


def _trace_sampler(
    settings: RLSettings, config: DecoderConfig, train_layout: Layout, layout: Layout
) -> Programs:
    """Traces the programs of one process; its sampler has its share of rows and episodes."""
    options = settings.sampler
    policy = settings.model.decode_policy(config, layout)
    stacked = policy.abstract_sampler_params(layout)
    shards = layout.shards("batch")
    B, episodes = _process_rows(settings, train_layout, shards)
    S = options["cache_length"]
    backend = choose_backend(B, policy.dtype, layout)
    params = _prepare_abstract(backend, stacked)
    cache = KVCache.abstract(config, B, S, policy.cache_dtype, layout)
    rounds = -(-episodes // B)
    sampled = ACTION_SHARE * settings.sampling.max_tokens
    trips = {"cache_blocks": -(-S // BLOCK), "decode_steps": options["decode_steps"]}
    draft_tokens = options["draft_tokens"] if "draft_tokens" in options else 0
    stop_ids, truncates = (0, 0), settings.sampling.is_truncated
    rows = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),
        decode.RowState.create(B, stop_ids, truncates=truncates, history=S if draft_tokens else 0),
    )
    count = jax.ShapeDtypeStruct((), jnp.int32)
    programs = []
    buckets = check_buckets(options["buckets"] or default_buckets(B, S), S, shards)
    for T, n in buckets:
        line = jax.ShapeDtypeStruct((n,), jnp.int32)
        tokens = jax.ShapeDtypeStruct((n, T), jnp.int32)
        traced = decode.prefill.trace(policy, params, cache, tokens, line, line, line)
        known = settings.sampling.max_tokens - sampled
        calls = rounds * B * known / (n * T) if T == buckets[-1][0] else 0.0
        programs.append(Program(f"prefill {n} x {T}", traced, calls, trips))
    steps = options["decode_steps"]
    inputs = (policy, params, cache, rows, count, None)
    if draft_tokens:
        traced = drafts.decode_chunk.trace(*inputs, count, steps=steps, draft_tokens=draft_tokens)
    else:
        traced = decode.decode_chunk.trace(*inputs, steps=steps)
    # With drafts, this is the time if no draft is right.
    programs.append(Program(f"decode {steps} tokens", traced, rounds * sampled / steps, trips))
    width = jax.ShapeDtypeStruct((max(1, B // shards // 4) * shards,), jnp.int32)
    start = jax.ShapeDtypeStruct((), jnp.int32)
    traced = decode.copy_rows.trace(cache, width, width, start, length=COPIED_SLOTS, layout=layout)
    programs.append(Program("copy prefix", traced, rounds, trips))
    first = []
    if backend.is_split:
        traced = jax.jit(backend.prepare_params).trace(stacked)
        first.append(Program("split layers", traced, 1.0, {}, extra=count_bytes(stacked)))
    residents = {"decode weights": count_bytes(params), "cache": count_bytes(cache)}
    num_stale = settings.rollout.max_off_policy_steps
    if settings.model.lora_settings is None and num_stale:
        residents["stale weights"] = num_stale * count_bytes(stacked)
    return Programs([*first, *programs], residents)


def _prepare_abstract(backend: DecodeBackend, stacked: Params) -> Params:
    """Returns the result of `prepare_params`; the part of a weight in one layer keeps its place."""
    if not backend.is_split:
        return stacked
    prepared = jax.eval_shape(backend.prepare_params, stacked)

    def drop_axis(x: Any, one: Any) -> Any:
        spec = jax.sharding.PartitionSpec(*x.sharding.spec[1:])
        sharding = jax.NamedSharding(x.sharding.mesh, spec)
        return jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=sharding)

    trees = tuple(jax.tree.map(drop_axis, stacked["layers"], t) for t in prepared["layers"].trees)
    return stacked | {"layers": SplitLayers(trees, is_native=False)}
