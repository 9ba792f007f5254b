"""What the jobs that learn from recorded data alone have in common: config, model, evaluation."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run import playing
from agentgym_jax.run.conversations import Manifest
from agentgym_jax.run.model import (
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    build_tokenizer,
    resolve_source,
)
from agentgym_jax.run.playing import Players, PlayingSettings
from agentgym_jax.run.run import Run, StopFlag, open_run
from agentgym_jax.run.sections import ConfigError, call, check, section
from agentgym_jax.run.settings import CheckpointSettings, GuardSettings, Tokens, check_top
from agentgym_jax.sharding import make_mesh

_SECTIONS = ("model", "tokenizer", "mesh", "checkpoint", "guards")


class Learning(supervised.Sources, Protocol):
    """What the job's own section has, whatever the job; see SftSettings."""

    @property
    def steps(self) -> int:
        """Optimiser steps."""

    @property
    def optimizer(self) -> Mapping[str, Any]:
        """Keyword arguments of `make_optimizer`, without total_steps."""


S = TypeVar("S", bound=Learning)
D = TypeVar("D")


@dataclasses.dataclass(frozen=True)
class OfflineSettings(Generic[S]):
    """A checked config; nothing is started, loaded or compiled yet.

    Attributes:
      job: its name, and that of its section.
      learning: the job's own section.
      playing: the sections of an evaluation; None without one.
    """

    job: str
    model: ModelSettings
    tokenizer: TokenizerSettings
    mesh: Mapping[str, Any]
    checkpoint: CheckpointSettings
    guards: GuardSettings
    logprob_chunk: int
    learning: S
    playing: PlayingSettings | None


@dataclasses.dataclass(frozen=True)
class OfflineParts(Generic[S, D]):
    """Everything that a job computes with.

    Attributes:
      settings: the checked config.
      model: policy, tokenizer, renderer.
      data: to learn from.
      players: play the held-out tasks; None without an evaluation.
    """

    settings: OfflineSettings[S]
    model: Model
    data: D
    players: Players | None


@dataclasses.dataclass(frozen=True)
class Loaded(Generic[D]):
    """Data of a job, and the conversations in it."""

    data: D
    conversations: Sequence[Conversation]


def parse(config: Mapping[str, Any], job: str, kind: Callable[..., S]) -> OfflineSettings[S]:
    """Checks every section of a plain config.

    Args:
      config: with the sections of _SECTIONS, that of the job, and all or none of `playing.SECTIONS`.
      job: its name, and that of its section.
      kind: class of that section.

    Raises:
      ConfigError: a key is unknown, missing or impossible; the message names it.
    """
    check_top(config, (*_SECTIONS, job, *playing.SECTIONS), logprob_chunk=Tokens)
    part = functools.partial(section, config)
    check(make_mesh, "mesh", part("mesh"), devices=None)
    learning = call(kind, job, part(job))
    if learning.steps != config["total_steps"]:
        raise ConfigError(
            f"config.{job}.steps={learning.steps} and config.total_steps={config['total_steps']} "
            f"must be the same number in job {job!r}"
        )
    supervised.check_demonstrations(learning, job)
    call(make_optimizer, f"{job}.optimizer", learning.optimizer, total_steps=learning.steps)
    plays = any(name in config for name in playing.SECTIONS)
    return OfflineSettings(
        job=job,
        model=call(ModelSettings, "model", part("model")),
        tokenizer=call(TokenizerSettings, "tokenizer", part("tokenizer")),
        mesh=part("mesh"),
        checkpoint=call(CheckpointSettings, "checkpoint", part("checkpoint")),
        guards=call(GuardSettings, "guards", part("guards")),
        logprob_chunk=config["logprob_chunk"],
        learning=learning,
        playing=playing.parse(config) if plays else None,
    )


@contextlib.contextmanager
def open_offline(
    config: Mapping[str, Any],
    workdir: str,
    stop: StopFlag,
    settings: OfflineSettings[S],
    load: Callable[[Run, Mapping[str, Manifest]], Loaded[D]],
) -> Iterator[tuple[Run, OfflineParts[S, D]]]:
    """Builds a job; closes servers, threads and files at the end.

    Args:
      config: the plain config that `settings` was parsed from.
      workdir: the run folder.
      stop: set when the run is asked to stop.
      settings: the checked config.
      load: gives the data, from the run and what asks each environment for its task list.
    """
    source = resolve_source(settings.model)
    layouts = build_layouts(settings.mesh)
    facts = {"model": settings.model.source}
    if settings.playing is not None:
        facts["evaluated on"] = ", ".join(settings.playing.environments)
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            open_run(
                config,
                workdir,
                checkpoint_settings=settings.checkpoint,
                total_steps=config["total_steps"],
                title=settings.job,
                facts=facts,
                stop=stop,
            )
        )
        environments = None
        if settings.playing is not None:
            run.console.phase("starting environments", 0, 1)
            environments = playing.open_playing(stack, settings.playing, run.folder)
            run.watch(environments)
        run.console.phase("loading data", 0, 1)
        clients = {} if environments is None else environments.clients
        loaded = load(run, {name: client.tasks for name, client in clients.items()})
        texts = supervised.texts(loaded.conversations)
        run.console.phase("preparing the tokenizer", 0, 1)
        tokenizer = build_tokenizer(settings.tokenizer, source, run.folder, texts)
        model = build_model(settings.model, source, tokenizer, layouts, run.folder)
        run.show_size(model.policy.config.num_parameters)
        players = None
        if settings.playing is not None and environments is not None:
            playing.check_held_out(environments, loaded.conversations)
            environments = playing.with_openings(
                environments, settings.playing, loaded.conversations
            )
            players = playing.build_players(settings.playing, model, environments)
        run.folder.begin()
        yield run, OfflineParts(settings, model, loaded.data, players)
