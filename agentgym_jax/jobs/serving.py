"""Components of a served model."""

from agentgym_jax.config.model import (
    COMPUTED,
    INT8,
    Model,
    ModelSettings,
    build_layouts,
    load_source,
)
from agentgym_jax.jobs.device_errors import check_devices, device_errors
from agentgym_jax.mesh.sharding import get_platform
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.backend import ModelBackend
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.requests import Sampling
from agentgym_jax.text.tool_chat import ToolChat

# Requests arrive one by one. A CPU computes their prompts at full speed without empty slices; other
# devices need several slices.
_BUCKETS = ((64, 8), (256, 4), (1024, 2))
_CPU_BUCKETS = ((16, 1), (64, 1), (256, 1), (1024, 1))
_KNOWN_PER_ROW = 32  # answers per row that can be continued


def load_model(
    name: str, *, dtype: str = "bfloat16", cache_dtype: str = COMPUTED, tensor: int = 1
) -> Model:
    """Loads tokenizer and shapes of a model; its weights are loaded by `initial_params`.

    Raises:
      ConfigError: There is no such model, or it has no tokenizer.
    """
    check_devices()
    compute = "bfloat16" if dtype == INT8 else dtype
    settings = ModelSettings(
        source=name, dtype=compute, decode_dtype=dtype, cache_dtype=cache_dtype, remat="none"
    )
    mesh = dict(data=1, fsdp=-1, tensor=tensor, decode_tensor=tensor)
    return load_source(settings, lambda hybrid: build_layouts(mesh, is_hybrid=hybrid))


def make_sampler(model: Model, *, rows: int, context: int, **options: int) -> Sampler:
    """Returns a sampler with the model's weights; the arguments are those of make_empty_sampler."""
    with device_errors({"rows": rows, "context": context}):
        sampler = make_empty_sampler(model, rows=rows, context=context, **options)
        spread = model.spread(model.initial_params())
        sampler.set_params(model.for_sampler(spread), version=0)
        return sampler


def make_empty_sampler(
    model: Model, *, rows: int, context: int, decode_steps: int = 16, draft_tokens: int = 0
) -> Sampler:
    """Returns a sampler without weights; rows are rounded up to divide over devices."""
    layout = model.decode_layout
    buckets = _CPU_BUCKETS if get_platform() == "cpu" else _BUCKETS
    shards = 1 if layout is None else layout.shards("batch")
    sampler = Sampler(
        model.decode_policy,
        rows=-(-rows // shards) * shards,
        cache_length=context,
        buckets=[b for b in buckets if b[0] <= context] or [(context, 1)],
        decode_steps=decode_steps,
        return_after_finished=1,
        draft_tokens=draft_tokens,
        stop_ids=model.renderer.stop_ids,
    )
    sampler.follow_load()
    return sampler


def make_backend(
    model: Model,
    sampler: Sampler,
    name: str,
    *,
    max_waiting: int,
    tool_parser: str = "auto",
    reasoning_parser: str = "none",
) -> ModelBackend:
    """Returns the backend of a model and its engine, which does not run yet."""
    context = sampler.cache_length
    return ModelBackend(
        Engine(sampler, model.tokenizer.decode, max_waiting=max_waiting, grammars=model.grammars),
        ToolChat(
            model.renderer,
            model.tokenizer,
            tool_parser=tool_parser,
            reasoning_parser=reasoning_parser,
        ),
        model.tokenizer,
        SamplingOptions(temperature=1.0, max_turn_tokens=context, max_tokens=context),
        model_name=name,
        max_known=_KNOWN_PER_ROW * sampler.rows,
    )


def warm_up(backend: ModelBackend) -> None:
    """Compiles the programs of a short answer before the first request."""
    prompt = [0] * min(2, backend.context_length - 2)
    backend.chat(None).submit_tokens(prompt, Sampling(max_tokens=2)).result.result()
