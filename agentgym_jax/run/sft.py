"""The parts of an SFT job."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run.model import (
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    build_tokenizer,
    resolve_source,
)
from agentgym_jax.run.run import Run, StopFlag, open_run
from agentgym_jax.run.sections import ConfigError, call, section
from agentgym_jax.run.settings import CheckpointSettings, SftSettings

_TOP = (
    "job",
    "seed",
    "total_steps",
    "model",
    "tokenizer",
    "mesh",
    "sft",
    "checkpoint",
    "logprob_chunk",
)


@dataclasses.dataclass(frozen=True)
class SFTParts:
    """Everything that an SFT job computes with.

    Attributes:
      settings: the section `sft`.
      model: policy, tokenizer, renderer.
      conversations: to imitate.
      logprob_chunk: tokens whose logits exist at the same time.
    """

    settings: SftSettings
    model: Model
    conversations: tuple[Conversation, ...]
    logprob_chunk: int


def parse(config: Mapping[str, Any]) -> dict[str, Any]:
    """Checks every section of a plain config; returns the settings by section."""
    unknown = sorted(set(config) - set(_TOP))
    if unknown:
        raise ConfigError(f"config.{unknown[0]}: there is no such key. Known: {', '.join(_TOP)}")
    part = functools.partial(section, config)
    settings: dict[str, Any] = {
        "model": call(ModelSettings, "model", part("model")),
        "tokenizer": call(TokenizerSettings, "tokenizer", part("tokenizer")),
        "sft": call(SftSettings, "sft", part("sft")),
        "checkpoint": call(CheckpointSettings, "checkpoint", part("checkpoint")),
    }
    sft: SftSettings = settings["sft"]
    if sft.steps != config["total_steps"]:
        raise ConfigError(
            f"config.sft.steps={sft.steps} and config.total_steps={config['total_steps']} must be "
            "the same number in job 'sft'"
        )
    supervised.check_demonstrations(sft)
    call(make_optimizer, "sft.optimizer", sft.optimizer, total_steps=sft.steps)
    return settings


@contextlib.contextmanager
def open_sft(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, SFTParts]]:
    """Builds the job from a plain config; closes its files at the end."""
    settings = parse(config)
    source = resolve_source(settings["model"])
    layouts = build_layouts(config["mesh"])
    with open_run(
        config,
        workdir,
        checkpoint_settings=settings["checkpoint"],
        total_steps=config["total_steps"],
        title="sft",
        facts={"model": settings["model"].source},
        stop=stop,
    ) as run:
        run.console.phase("loading conversations", 0, 1)
        conversations = supervised.load_conversations(settings["sft"], run.folder, {})
        texts = supervised.texts(conversations)
        tokenizer = build_tokenizer(settings["tokenizer"], source, run.folder, texts)
        model = build_model(settings["model"], source, tokenizer, layouts, run.folder)
        yield (
            run,
            SFTParts(settings["sft"], model, tuple(conversations), config["logprob_chunk"]),
        )
