"""Policy, tokenizer and layouts from the sections model, tokenizer and mesh."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from absl import logging

from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models import sources
from agentgym_jax.models.config import DecoderConfig, to_hf_config
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.run.sections import ConfigError, call, check
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
    """The section `model`.

    Attributes:
      source: Hugging Face directory or hub id, `.gguf` file, run folder, preset; or `random`
        for the given architecture.
      architecture: keyword arguments of DecoderConfig without vocab_size, for `random`; else empty.
      dtype: of the learner's computation; parameters and optimiser are float32.
      decode_dtype: of the sampler's weights and computation.
      remat: `none`, `block` or `dots`.
    """

    source: str
    architecture: Mapping[str, Any]
    dtype: str
    decode_dtype: str
    remat: str

    def __post_init__(self) -> None:
        if (self.source == _RANDOM) != bool(self.architecture):
            raise ValueError(
                f"source={self.source!r} with architecture={dict(self.architecture)}: an "
                "architecture goes with source='random' and only with it"
            )


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """The section `tokenizer`.

    Attributes:
      source: `model` (the model's own), a path, `bytes`, or `train` (on the demonstrations).
      vocab_size: of a trained one; 0 otherwise.
      isolate: regular expression of what a trained one never merges with its neighbours.
      template: conversation format of a trained one: `compact` or `chatml`.
    """

    source: str
    vocab_size: int
    isolate: str
    template: str

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise ValueError(f"template={self.template!r} is none of {', '.join(TEMPLATES)}")


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
        return sources.load_params(self.source, self.policy, self.layout, seed=seed)


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
    """Finds the model on disk; None for random weights. Loads nothing."""
    if settings.source == _RANDOM:
        check(DecoderConfig, "model.architecture", settings.architecture, vocab_size=0)
        return None
    try:
        return sources.resolve(settings.source)
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(f"config.model.source={settings.source}: {error}") from error


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
            raise ConfigError(
                "config.tokenizer.source='model', but the model has random weights and no "
                "tokenizer; give a path, 'bytes' or 'train'"
            )
        tokenizer = load_tokenizer(path)
    else:
        tokenizer = load_tokenizer(settings.source)
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
