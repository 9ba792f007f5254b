"""The parts of a DPO job."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from absl import logging

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.preferences import Preference, pair_up, read_preferences
from agentgym_jax.data.rows import Bad
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.preference import LOSSES
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
from agentgym_jax.run.sections import ConfigError, call, check, section
from agentgym_jax.run.settings import CheckpointSettings

_TOP = (
    "job",
    "seed",
    "total_steps",
    "model",
    "tokenizer",
    "mesh",
    "dpo",
    "checkpoint",
    "logprob_chunk",
)


@dataclasses.dataclass(frozen=True)
class DpoSettings:
    """The section `dpo`.

    Attributes:
      steps: optimiser steps.
      pairs: per optimiser step.
      micro_rows: packed rows whose gradient is computed at once, at least 2; they hold whole pairs.
      row_length: tokens per row.
      loss: a key of `learner.preference.LOSSES`: `sigmoid` (DPO) or `ipo`.
      beta: how strongly the policy is held near the reference, which is the policy at the start.
      length_normalised: a conversation's log-probability is a mean over its tokens, not a sum.
      too_long: pairs of which a conversation is longer than a row: `error`, `skip` or `truncate`.
      bad: rows of a data file that cannot be read: `fatal` or `skip`.
      preferences: files of ready-made pairs (data/preferences.py).
      files: conversations to pair up: files, or folders of our runs.
      demonstrations: name -> tasks and player to record and pair up (data/demonstrations.py).
      pairing: keyword arguments of `pair_up` without seed.
      optimizer: keyword arguments of `make_optimizer`, without total_steps.
    """

    steps: int
    pairs: int
    micro_rows: int
    row_length: int
    loss: str
    beta: float
    length_normalised: bool
    too_long: Literal["error", "skip", "truncate"]
    bad: Bad
    preferences: tuple[str, ...]
    files: tuple[str, ...]
    demonstrations: Mapping[str, Any]
    pairing: Mapping[str, Any]
    optimizer: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("pairs", 1), ("micro_rows", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")
        if self.loss not in LOSSES:
            raise ValueError(f"loss={self.loss!r} is none of {', '.join(LOSSES)}")
        if not self.beta > 0:
            raise ValueError(f"beta={self.beta} must be positive")
        if self.too_long not in ("error", "skip", "truncate"):
            raise ValueError(f"too_long={self.too_long!r}, expected 'error', 'skip' or 'truncate'")
        if not (self.preferences or self.files or self.demonstrations):
            raise ValueError("give preferences, files or demonstrations: there is nothing to pair")


@dataclasses.dataclass(frozen=True)
class DPOParts:
    """Everything that a DPO job computes with.

    Attributes:
      settings: the section `dpo`.
      model: policy, tokenizer, renderer.
      preferences: all pairs, in an order that does not depend on the run.
      logprob_chunk: tokens whose logits exist at the same time.
    """

    settings: DpoSettings
    model: Model
    preferences: tuple[Preference, ...]
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
        "dpo": call(DpoSettings, "dpo", part("dpo")),
        "checkpoint": call(CheckpointSettings, "checkpoint", part("checkpoint")),
    }
    dpo: DpoSettings = settings["dpo"]
    if dpo.steps != config["total_steps"]:
        raise ConfigError(
            f"config.dpo.steps={dpo.steps} and config.total_steps={config['total_steps']} must be "
            "the same number in job 'dpo'"
        )
    supervised.check_demonstrations(dpo, "dpo")
    check(pair_up, "dpo.pairing", dpo.pairing, conversations=(), seed=0)
    call(pair_up, "dpo.pairing", dpo.pairing, conversations=(), seed=0)
    call(make_optimizer, "dpo.optimizer", dpo.optimizer, total_steps=dpo.steps)
    return settings


@contextlib.contextmanager
def open_dpo(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, DPOParts]]:
    """Builds the job from a plain config; closes its files at the end."""
    settings = parse(config)
    dpo: DpoSettings = settings["dpo"]
    source = resolve_source(settings["model"])
    layouts = build_layouts(config["mesh"])
    with open_run(
        config,
        workdir,
        checkpoint_settings=settings["checkpoint"],
        total_steps=config["total_steps"],
        title="dpo",
        facts={"model": settings["model"].source},
        stop=stop,
    ) as run:
        run.console.phase("loading pairs", 0, 1)
        episodes = supervised.load_conversations(dpo, run.folder, {}, "dpo")
        preferences = load_preferences(dpo, episodes, seed=config["seed"])
        run.console.note(f"{len(preferences)} preference pairs")
        members = [side for pair in preferences for side in (pair.chosen, pair.rejected)]
        texts = supervised.texts(members)
        tokenizer = build_tokenizer(settings["tokenizer"], source, run.folder, texts)
        model = build_model(settings["model"], source, tokenizer, layouts, run.folder)
        yield run, DPOParts(dpo, model, tuple(preferences), config["logprob_chunk"])


def load_preferences(
    settings: DpoSettings, episodes: Sequence[Conversation], *, seed: int
) -> list[Preference]:
    """Ready-made pairs of the files, then those made of episodes.

    Raises:
      ConfigError: a file cannot be read, or there is no pair at all.
    """
    preferences: list[Preference] = []
    for path in settings.preferences:
        try:
            preferences += read_preferences(path, bad=settings.bad)[0]
        except (ValueError, OSError) as error:
            raise ConfigError(f"config.dpo.preferences: {error}") from error
    made, statistics = pair_up(episodes, **settings.pairing, seed=seed)
    if episodes:
        logging.info("pairs of episodes: %s", statistics)
    if not preferences and not made:
        raise ConfigError(
            f"config.dpo: there is no pair to learn from ({statistics}). Two episodes of one task "
            "with the same prompt are needed, one of at least pairing.threshold and one that is "
            "pairing.gap below it"
        )
    return preferences + made
