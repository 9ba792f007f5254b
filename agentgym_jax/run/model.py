"""Policy, tokenizer and layouts from the sections model, tokenizer and mesh."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import jax
from absl import logging

from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.models import sources
from agentgym_jax.models.config import PRESETS, DecoderConfig, to_hf_config
from agentgym_jax.models.decoder import REMAT_POLICIES
from agentgym_jax.models.policy import DTYPES, Policy
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.run.sections import ConfigError, call
from agentgym_jax.run_folder import RunFolder, write_atomic
from agentgym_jax.sharding import DECODE_RULES, TRAIN_RULES, Layout, make_mesh
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import CHATML, COMPACT
from agentgym_jax.text.tokenizer import Tokenizer, load_tokenizer
from agentgym_jax.text.train_tokenizer import train_tokenizer

_RANDOM = "random"
TEMPLATES = {"compact": COMPACT, "chatml": CHATML}


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Section `model`.

    Attributes:
      source: Hugging Face directory or hub id, `.gguf` file, run folder, preset; or `random`
        for the given architecture.
      architecture: Architecture of a `random` model; empty for any other.
      dtype: Type of the learner's computation; parameters and optimiser are float32.
      decode_dtype: Type of the sampler's weights and computation.
      remat: Activations that the backward pass computes again: `none`, whole layers (`block`), or
        everything but matrix products (`dots`).
    """

    source: str
    architecture: Mapping[str, Any]
    dtype: Annotated[str, OneOf(DTYPES)]
    decode_dtype: Annotated[str, OneOf(DTYPES)]
    remat: Annotated[str, OneOf(REMAT_POLICIES)]

    def __post_init__(self) -> None:
        if (self.source == _RANDOM) != bool(self.architecture):
            raise ValueError(
                f"source={self.source!r} with architecture={dict(self.architecture)}: an "
                "architecture goes with source='random' and only with it"
            )
        if self.architecture:
            call(DecoderConfig, "model.architecture", self.architecture, vocab_size=1)


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """Section `tokenizer`.

    Attributes:
      source: `model` (the model's own), a path, `bytes`, or `train` (on the demonstrations).
      vocab_size: Vocabulary of a trained tokenizer; 0 for any other.
      isolate: Regular expression; a trained tokenizer never merges a match with its neighbours.
      template: Conversation format of a trained tokenizer: `compact` or `chatml`.
    """

    source: str
    vocab_size: Annotated[int, Range(0, unit="tokens")]
    isolate: str
    template: Annotated[str, OneOf(TEMPLATES)]

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source is empty: give 'model', 'bytes', 'train' or a path")


@dataclasses.dataclass(frozen=True)
class Model:
    """What computes with tokens, and what makes them.

    Attributes:
      policy: for learning.
      decode_policy: for sampling.
      layout: of the learner; None on a single device.
      decode_layout: of the sampler.
      tokenizer: text to ids.
      renderer: conversations to ids.
      source: where weights come from; None for random ones.
    """

    policy: Policy
    decode_policy: Policy
    layout: Layout | None
    decode_layout: Layout | None
    tokenizer: Tokenizer
    renderer: ChatRenderer
    source: ModelSource | None

    def initial_params(self, seed: int):
        """Weights before any training, float32, on their shards."""
        if self.source is None:
            return self.policy.init_sharded(jax.random.key(seed), self.layout)
        if self.source.kind == "workdir":
            return load_run_params(self.source, self.policy, self.layout)
        try:
            return sources.load_params(self.source, self.policy, self.layout, seed=seed)
        except (ValueError, OSError) as error:
            raise ConfigError(f"the weights of {self.source.model}: {error}") from error


def abstract_params(policy: Policy, layout: Layout | None):
    """Shapes of the weights with the shardings of a layout: what a restore asks for."""
    shapes = policy.abstract_params()
    if layout is None:
        return shapes
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        policy.param_shardings(layout),
    )


def load_run_params(source: ModelSource, policy: Policy, layout: Layout | None):
    """Parameters of the latest checkpoint of a run folder."""
    if source.path is None:
        raise ConfigError(f"{source.model} is no run folder")
    with Checkpoints(source.path / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        step = checkpoints.latest_step()
        if step is None:
            raise ConfigError(f"{source.path} has no finished checkpoint yet")
        return checkpoints.restore_params(step, abstract_params(policy, layout))


def build_layouts(mesh_options: Mapping[str, Any]) -> tuple[Layout | None, Layout | None]:
    """Layouts for learning and decoding; None if the mesh is one device."""
    mesh = call(make_mesh, "mesh", mesh_options)
    if mesh.size == 1:
        return None, None
    return Layout(mesh, TRAIN_RULES), Layout(mesh, DECODE_RULES)


def resolve_source(settings: ModelSettings) -> ModelSource | None:
    """Finds the model on disk and checks its files; None for random weights. Loads nothing.

    Raises:
      ConfigError: there is no such model, or its weights are incomplete.
    """
    if settings.source == _RANDOM:
        return None
    if not settings.source:
        raise ConfigError(
            "config.model.source is empty: name a Hugging Face directory or hub id, a .gguf file, "
            f"a run folder, a preset ({', '.join(PRESETS)}) or 'random'"
        )
    try:
        source = sources.resolve(settings.source)
        sources.check_weights(source)
    except (ValueError, OSError) as error:
        raise ConfigError(f"config.model.source={settings.source}: {error}") from error
    return source


def build_tokenizer(
    settings: TokenizerSettings,
    source: ModelSource | None,
    folder: RunFolder,
    texts: Iterable[str],
) -> Tokenizer:
    """The run's tokenizer; kept in the run folder, so that a resumed run has the same ids.

    Args:
      settings: the section.
      source: of the model.
      folder: where it is kept.
      texts: what `train` is trained on.
    """
    if (folder.tokenizer / "tokenizer.json").exists():
        return load_tokenizer(folder.tokenizer)
    try:
        tokenizer = _make_tokenizer(settings, source, folder, texts)
    except (ValueError, OSError) as error:
        raise ConfigError(f"config.tokenizer.source={settings.source!r}: {error}") from error
    return tokenizer


def _make_tokenizer(
    settings: TokenizerSettings,
    source: ModelSource | None,
    folder: RunFolder,
    texts: Iterable[str],
) -> Tokenizer:
    if settings.source == "train":
        train_tokenizer(
            texts,
            vocab_size=settings.vocab_size,
            isolate=settings.isolate,
            out=folder.tokenizer,
            template=TEMPLATES[settings.template],
        )
        return load_tokenizer(folder.tokenizer)
    if settings.source == "model":
        path = None if source is None else source.tokenizer_path
        if path is None:
            raise ValueError(
                "the model has random weights and no tokenizer; give a path, 'bytes' or 'train'"
            )
        tokenizer = load_tokenizer(path)
    else:
        tokenizer = load_tokenizer(settings.source)
    ChatRenderer(tokenizer)  # a template that cannot be used fails here, where its source is named
    tokenizer.save(folder.tokenizer)
    return tokenizer


def build_model(
    settings: ModelSettings,
    source: ModelSource | None,
    tokenizer: Tokenizer,
    layouts: tuple[Layout | None, Layout | None],
    folder: RunFolder,
) -> Model:
    """Policies for a tokenizer; writes model/config.json of the run folder."""
    if source is None:
        config = call(
            DecoderConfig,
            "model.architecture",
            settings.architecture,
            vocab_size=tokenizer.vocab_size,
        )
    else:
        config = source.config
    if tokenizer.vocab_size > config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size} ids, the model only {config.vocab_size} "
            "embeddings; they do not belong together"
        )
    layout, decode_layout = layouts
    write_atomic(folder.model / "config.json", json.dumps(to_hf_config(config), indent=2) + "\n")
    logging.info("policy with %.2f million parameters", config.num_parameters / 1e6)
    return Model(
        policy=Policy(config, dtype=settings.dtype, remat=settings.remat, layout=layout),
        decode_policy=Policy(config, dtype=settings.decode_dtype, layout=decode_layout),
        layout=layout,
        decode_layout=decode_layout,
        tokenizer=tokenizer,
        renderer=ChatRenderer(tokenizer),
        source=source,
    )
