"""Sections `model`, `tokenizer` and `mesh`, and the objects built from them."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import jax
from absl import logging

from agentgym_jax.checks import limits
from agentgym_jax.checks.limits import OneOf, Range
from agentgym_jax.config.sections import ConfigError, call, config_errors
from agentgym_jax.learner import stored_weights
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.learner.stored_weights import (
    fingerprint,
    make_adapters,
    record_adapters,
    record_once,
)
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.sharding import (
    Layout,
    get_platform,
    make_layouts,
    reshard,
    rewrap,
    spread_layout,
)
from agentgym_jax.models import lora, sources
from agentgym_jax.models.config import PRESETS, DecoderConfig, to_hf_config
from agentgym_jax.models.lora import TARGETS, Adapters
from agentgym_jax.models.policy import (
    ATTENTIONS,
    CUDNN,
    DTYPES,
    KERNELS,
    REMAT_POLICIES,
    Params,
    Policy,
    make_sampler_params,
)
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.runs.atomic_files import write_atomic
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.grammars import Grammars
from agentgym_jax.text.template import CHATML, COMPACT, Value
from agentgym_jax.text.tokenizer import Tokenizer, load_tokenizer
from agentgym_jax.text.train_tokenizer import train_tokenizer

_RANDOM = "random"
INT8 = "int8"
COMPUTED = "computed"
CACHE_DTYPES = (COMPUTED, INT8)
TEMPLATES = {"compact": COMPACT, "chatml": CHATML}


@dataclasses.dataclass(frozen=True)
class LoraSettings:
    """Section `model.lora`: adapters that are trained instead of the model's weights.

    Attributes:
      rank: Inner size of the adapters; 0 trains all weights of the model.
      alpha: Scale of the adapters times the rank; 0 for twice the rank.
      targets: Adapted kernels.
      decode: Weights of the sampler: `merged` (base plus adapters) or `unmerged` (both).
    """

    rank: Annotated[int, Range(0)]
    alpha: Annotated[float, Range(0)]
    targets: tuple[Annotated[str, OneOf(TARGETS)], ...]
    decode: Annotated[str, OneOf(("merged", "unmerged"))]

    def __post_init__(self) -> None:
        if len(set(self.targets)) < max(1, len(self.targets)):
            raise ValueError(f"targets={list(self.targets)}: name each kernel once, at least one")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Section `model`.

    Attributes:
      source: Hugging Face directory or hub id, run folder or preset; or `random` with
        an architecture.
      architecture: Architecture of a `random` model; empty for other sources.
      dtype: Type of the learner's computation, and of the reference's kernels and embeddings; the
        policy's parameters are float32.
      decode_dtype: Type of the sampler's weights and computation; with `int8` its kernels and output
        head are int8, and it computes in `dtype` (docs/algorithms.md).
      cache_dtype: Type of the keys and values in the sampler's cache: `computed` (that of its
        computation) or `int8` (docs/algorithms.md).
      remat: Activations recomputed in the backward pass: `none`, `block` (whole layers) or `dots`
        (everything except matrix products).
      attention: Attention of the learner's rows on a GPU: `kernels`, or `cudnn` for batches without
        a row of several episodes, which computes in bfloat16 (docs/pods.md).
      lora: Low-rank adapters that are trained instead of all weights: `rank`, `alpha`, `targets` and
        `decode` (docs/algorithms.md); empty, or of rank 0, for none.
    """

    source: str
    architecture: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: Annotated[str, OneOf(DTYPES)]
    decode_dtype: Annotated[str, OneOf((*DTYPES, INT8))]
    cache_dtype: Annotated[str, OneOf(CACHE_DTYPES)] = COMPUTED
    remat: Annotated[str, OneOf(REMAT_POLICIES)]
    attention: Annotated[str, OneOf(ATTENTIONS)] = KERNELS
    lora: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.attention == CUDNN and self.dtype != "bfloat16":
            raise ValueError(
                f"attention='cudnn' with dtype={self.dtype!r}: cuDNN's attention computes in bfloat16; "
                "set dtype='bfloat16', or attention='kernels'"
            )
        if not self.decodes_merged and self.decode_dtype == INT8:  # checks the section, too
            raise ValueError(
                "decode_dtype='int8' with lora.decode='unmerged': int8 weights include the adapters; "
                "set lora.decode='merged', or decode_dtype='bfloat16'"
            )
        if (self.source == _RANDOM) != bool(self.architecture):
            raise ValueError(
                f"source={limits.shorten(self.source)} with architecture={dict(self.architecture)}: "
                "'random' needs an architecture; for stored weights set architecture={} and usually "
                "tokenizer.source='model'"
            )
        if self.architecture:
            call(DecoderConfig, "model.architecture", self.architecture, vocab_size=1)

    def train_policy(self, config: DecoderConfig, layout: Layout | None) -> Policy:
        """Returns the policy of the learner."""
        return Policy(
            config, dtype=self.dtype, remat=self.remat, layout=layout, attention=self.attention
        )

    @property
    def lora_settings(self) -> LoraSettings | None:
        """Returns the checked section `lora`; None if it has no adapters."""
        settings = call(LoraSettings, "model.lora", self.lora) if self.lora else None
        return settings if settings is not None and settings.rank else None

    @property
    def decodes_merged(self) -> bool:
        """Returns True if the sampler's weights have no separate adapters."""
        settings = self.lora_settings
        return settings is None or settings.decode == "merged"

    def decode_policy(self, config: DecoderConfig, layout: Layout | None) -> Policy:
        """Returns the policy of the sampler."""
        if self.cache_dtype == INT8 and get_platform() == "tpu":
            raise ConfigError(
                "config.model.cache_dtype='int8': the kernels for TPU have no int8 cache; set 'computed'"
            )
        is_int8 = self.decode_dtype == INT8
        dtype = self.dtype if is_int8 else self.decode_dtype
        return Policy(
            config,
            dtype=dtype,
            layout=layout,
            is_int8=is_int8,
            has_int8_cache=self.cache_dtype == INT8,
        )


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """Section `tokenizer`.

    Attributes:
      source: `model` (its tokenizer), a path, `bytes`, or `train` (trains on the demonstrations).
      vocab_size: Vocabulary size of a trained tokenizer; 0 for other sources.
      pretokenizer_pattern: Regular expression; a token of a trained tokenizer is part of one match.
      template: Conversation format of a trained tokenizer: `compact` or `chatml`.
      variables: Variables of the chat template, such as `{'enable_thinking': False}`; the value of
        `strftime_now` is the date that the template writes.
    """

    source: str
    vocab_size: Annotated[int, Range(0, unit="tokens")] = 0
    pretokenizer_pattern: str = ""
    template: Annotated[str, OneOf(TEMPLATES)] = "chatml"
    variables: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source is empty: give 'model', 'bytes', 'train' or a path")
        if self.variables and self.source == "train":
            raise ValueError("variables: the templates of a trained tokenizer have none")


@dataclasses.dataclass(frozen=True)
class Model:
    """Policies, tokenizer and renderer of a run.

    Attributes:
      policy: Policy of the learner.
      decode_policy: Policy of the sampler.
      layout: Layout of the learner; None on a single device.
      decode_layout: Layout of the sampler; None on a single device.
      source: Source of the weights; None for random weights.
      seed: Seed of random weights.
      adapters: Adapters that are trained instead of all weights; None for none.
      decodes_merged: True if the sampler's weights have merged adapters.
    """

    policy: Policy
    decode_policy: Policy
    layout: Layout | None
    decode_layout: Layout | None
    tokenizer: Tokenizer
    renderer: ChatRenderer
    source: ModelSource | None
    seed: int = 0
    adapters: Adapters | None = None
    decodes_merged: bool = True

    @functools.cached_property
    def grammars(self) -> Grammars:
        """Compiler of the grammars of answers."""
        return Grammars(self.tokenizer, self.renderer.stop_ids, self.policy.config.vocab_size)

    @property
    def trained(self) -> Policy | Adapters:
        """Network whose weights are trained: the policy or its adapters."""
        return self.adapters or self.policy

    @functools.cached_property
    def base(self) -> Params | None:
        """Frozen weights of the adapters, in the types of the computation; None without adapters."""
        return None if self.adapters is None else self.policy.cast_params(self._load())

    @property
    def spread_shardings(self) -> Params | None:
        """Shardings of the sampler's weights on the devices of all processes; None for one device."""
        if self.layout is None or self.decode_layout is None:
            return None
        return self.decode_shardings(spread_layout(self.layout, self.decode_layout))

    def decode_shardings(self, layout: Layout | None) -> Params | None:
        """Returns the shardings of the sampler's weights in a layout; None without a layout."""
        if layout is None:
            return None
        if self.adapters is None or self.decodes_merged:
            return jax.tree.map(
                lambda x: x.sharding, self.decode_policy.abstract_sampler_params(layout)
            )
        shardings = self.decode_policy.param_shardings(layout) or {}
        return self.adapters.attach(shardings, self.adapters.param_shardings(layout) or {})

    def initial_params(self) -> Params:
        """Returns the float32 weights before training: new adapters, or those of the source."""
        if self.adapters is not None:
            return self.adapters.init_sharded(jax.random.key(self.seed), self.layout)
        return self._load()

    def pin(self, folder: RunFolder) -> None:
        """Records which weights a run that needs `initial_params` again began with.

        Raises:
          ConfigError: They have changed since then.
        """
        if self.source is not None and self.adapters is None and processes.is_writer():
            with config_errors("config.model.source: ", OSError):
                record_once(folder.model / "source.json", fingerprint(self.source))

    def attach(self, trained: Params) -> Params:
        """Returns weights of `policy`, given the trained weights; no array is copied."""
        return lora.attach(self.adapters, self.base, trained)

    def merge(self, trained: Params) -> Params:
        """Returns plain float32 weights, given the trained weights."""
        return trained if self.adapters is None else lora.merge(self.attach(trained), "float32")

    def spread(self, trained: Params) -> Params:
        """Returns the weights of the samplers of all processes, given the trained weights."""
        params, shardings = self.attach(trained), self.spread_shardings
        if not self.decodes_merged:
            return reshard(params, shardings, self.decode_policy.dtype)
        return make_sampler_params(shardings)(self.decode_policy, params)

    def for_sampler(self, spread: Params) -> Params:
        """Returns the weights of this process's sampler, which are a part of the `spread` ones."""
        if self.decode_layout is None:
            return spread
        return rewrap(spread, self.decode_shardings(self.decode_layout))

    def abstract_params(self) -> Params:
        """Returns the shapes and shardings of the trained weights; a restore needs them."""
        return stored_weights.abstract_params(self.trained, self.layout)

    def _load(self) -> Params:
        if self.source is None:
            return self.policy.init_sharded(jax.random.key(self.seed), self.layout)
        with config_errors(f"the weights of {self.source.model}: ", OSError, CheckpointError):
            return stored_weights.load(self.source, self.policy, self.layout, seed=self.seed)


def build_layouts(
    mesh_options: Mapping[str, Any], *, is_hybrid: bool = False
) -> tuple[Layout | None, Layout | None]:
    """Builds the layouts of learner and sampler; None on a single device.

    `is_hybrid` is True for a model with gated delta nets, which runs on a single device.
    """
    layouts = call(make_layouts, "mesh", mesh_options)
    if is_hybrid and layouts != (None, None):
        raise ConfigError(
            f"config.model is a Qwen3.5, which runs on one device, but there are {jax.device_count()}"
            ": show the program one device, e.g. with CUDA_VISIBLE_DEVICES=0"
        )
    return layouts


def is_hybrid(settings: ModelSettings, source: ModelSource | None) -> bool:
    """Returns True for a model with gated delta nets (Qwen3.5)."""
    if source is None:
        return "hybrid" in settings.architecture and settings.architecture["hybrid"] is not None
    return source.config.hybrid is not None


def resolve_source(settings: ModelSettings) -> ModelSource | None:
    """Finds a model and checks its files without loading them; None for random weights."""
    if settings.source == _RANDOM:
        _check_hybrid(settings, None)
        return None
    if not settings.source:
        raise ConfigError(
            "config.model.source is empty: name a Hugging Face directory or hub id, "
            f"a run folder, a preset ({', '.join(PRESETS)}) or 'random'"
        )
    with config_errors("", OSError):  # the messages name the model
        source = sources.resolve(settings.source)
    _check_hybrid(settings, source)
    return source


def _check_hybrid(settings: ModelSettings, source: ModelSource | None) -> None:
    if settings.lora_settings is not None and is_hybrid(settings, source):
        raise ConfigError(
            "config.model.lora: a Qwen3.5 is trained with all its weights only; set "
            "config.model.lora.rank=0"
        )
    if settings.decode_dtype == INT8 and is_hybrid(settings, source):
        raise ConfigError(
            "config.model.decode_dtype='int8': a Qwen3.5 has no int8 weights; set 'bfloat16'"
        )
    if settings.cache_dtype == INT8 and is_hybrid(settings, source):
        raise ConfigError(
            "config.model.cache_dtype='int8': a Qwen3.5 has no int8 cache; set 'computed'"
        )


def build_model(
    settings: ModelSettings,
    tokenizer_settings: TokenizerSettings,
    source: ModelSource | None,
    layouts: tuple[Layout | None, Layout | None],
    folder: RunFolder,
    texts: Iterable[str],
    *,
    seed: int,
) -> Model:
    """Builds tokenizer and policies; saves the tokenizer and model/config.json in the run folder.

    `texts` are the training texts of a tokenizer with source `train`; `seed` is that of random
    weights.
    """
    with folder.writer_first():  # the others load the tokenizer that process 0 saves
        tokenizer = _build_tokenizer(tokenizer_settings, source, folder, texts)
    model = assemble_model(settings, tokenizer, source, layouts, seed=seed)
    logging.info("policy with %.2f million parameters", model.policy.num_parameters / 1e6)
    if processes.is_writer():
        text = json.dumps(to_hf_config(model.policy.config), indent=2) + "\n"
        write_atomic(folder.model / "config.json", text)
    if model.adapters is not None:
        logging.info("adapters with %.2f million parameters", model.adapters.num_parameters / 1e6)
        if processes.is_writer():
            with config_errors("config.model.source: "):
                record_adapters(folder.model, model.adapters, source, settings.dtype, seed)
    return model


def load_source(
    settings: ModelSettings, layouts: Callable[[bool], tuple[Layout | None, Layout | None]]
) -> Model:
    """Builds tokenizer and policies of a stored model without a run folder.

    `layouts` returns the layouts of learner and sampler, given whether the model is a hybrid.

    Raises:
      ConfigError: There is no such model, it is not supported, or it has no tokenizer.
    """
    source = resolve_source(settings)
    try:
        if source is None:
            raise ValueError("a model with random weights has no tokenizer")
        tokenizer = sources.read_tokenizer(source)
        return assemble_model(settings, tokenizer, source, layouts(is_hybrid(settings, source)))
    except ConfigError:
        raise
    except (ValueError, OSError) as error:
        raise ConfigError(f"model {settings.source}: {error}") from error


def assemble_model(
    settings: ModelSettings,
    tokenizer: Tokenizer,
    source: ModelSource | None,
    layouts: tuple[Layout | None, Layout | None],
    *,
    seed: int = 0,
) -> Model:
    """Builds the policies of a model with a tokenizer; no weights are loaded.

    Raises:
      ConfigError: The tokenizer or its template cannot be used with the model.
    """
    if source is None:
        size = tokenizer.vocab_size
        config = call(DecoderConfig, "model.architecture", settings.architecture, vocab_size=size)
    else:
        config = source.config
    with config_errors(f"the model {settings.source}: "):
        sources.check_vocabulary(tokenizer, config)
        renderer = ChatRenderer(tokenizer)
    layout, decode_layout = layouts
    policy = settings.train_policy(config, layout)
    return Model(
        policy=policy,
        decode_policy=settings.decode_policy(config, decode_layout),
        layout=layout,
        decode_layout=decode_layout,
        tokenizer=tokenizer,
        renderer=renderer,
        source=source,
        seed=seed,
        adapters=build_adapters(settings, policy),
        decodes_merged=settings.decodes_merged,
    )


def build_adapters(settings: ModelSettings, policy: Policy) -> Adapters | None:
    """Returns the adapters of the section `model.lora`; None if all weights are trained."""
    options = settings.lora_settings
    if options is None:
        return None
    alpha = options.alpha or 2.0 * options.rank
    return make_adapters(policy, rank=options.rank, alpha=alpha, targets=options.targets)


def _build_tokenizer(
    settings: TokenizerSettings, source: ModelSource | None, folder: RunFolder, texts: Iterable[str]
) -> Tokenizer:
    """Returns the tokenizer of the run folder; builds and saves it first if there is none."""
    with config_errors(f"config.tokenizer.source={settings.source!r}: ", OSError):
        if (folder.tokenizer / "tokenizer.json").exists():
            return load_tokenizer(folder.tokenizer)
        if settings.source == "train":
            train_tokenizer(
                texts,
                vocab_size=settings.vocab_size,
                pretokenizer_pattern=settings.pretokenizer_pattern,
                out=folder.tokenizer,
                template=TEMPLATES[settings.template],
            )
            return load_tokenizer(folder.tokenizer)
        if settings.source != "model":
            tokenizer = load_tokenizer(settings.source)
        elif source is not None:
            tokenizer = sources.read_tokenizer(source)
        else:
            raise ValueError(
                "the model has random weights and no tokenizer; give a path, 'bytes' or 'train'"
            )
        tokenizer = tokenizer.with_variables(settings.variables)
        ChatRenderer(tokenizer)  # raises an error if the template is unusable
        tokenizer.save(folder.tokenizer)
    return tokenizer
