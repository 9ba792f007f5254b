"""The parts of a DPO job."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from absl import logging

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.preferences import Preference, pair_up, read_preferences
from agentgym_jax.learner.preference import LOSSES
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run import offline
from agentgym_jax.run.conversations import Manifest
from agentgym_jax.run.offline import Loaded, OfflineParts, OfflineSettings
from agentgym_jax.run.run import Run, StopFlag
from agentgym_jax.run.sections import ConfigError, call
from agentgym_jax.run.settings import Count, Steps, Tokens


@dataclasses.dataclass(frozen=True)
class DpoSettings:
    """Section `dpo`: preferences between episodes of the same task.

    Attributes:
      steps: Optimiser steps.
      pairs: Pairs per optimiser step.
      micro_rows: Packed rows whose gradient is computed together; they hold whole pairs.
      row_length: Length of a row.
      loss: Preference loss: `sigmoid` (DPO) or `ipo`.
      beta: Strength of the pull towards the reference, which is the policy at the start.
      length_normalised: Takes the mean over a conversation's tokens as its log-probability instead
        of the sum.
      too_long: Treatment of pairs with a conversation longer than a row: `error`, `skip` or
        `truncate`.
      bad: Treatment of rows of a data file that cannot be read: `fatal` or `skip`.
      preferences: Files of ready-made pairs (data/preferences.py).
      files: Conversations to pair up: files, or folders of runs.
      demonstrations: Name -> tasks and player to record and pair up (data/demonstrations.py).
      pairing: Choice of pairs: `measure`, `threshold`, `gap`, `unrated` and `pairs_per_task`.
      optimizer: Optimiser, with the keys of the section `optimizer`.
    """

    steps: Steps
    pairs: Count
    micro_rows: Annotated[int, Range(2)]
    row_length: Tokens
    loss: Annotated[str, OneOf(LOSSES)]
    beta: Annotated[float, Range(above=0)]
    length_normalised: bool
    too_long: Literal["error", "skip", "truncate"]
    bad: Literal["fatal", "skip"]
    preferences: tuple[str, ...]
    files: tuple[str, ...]
    demonstrations: Mapping[str, Any]
    pairing: Mapping[str, Any]
    optimizer: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not (self.preferences or self.files or self.demonstrations):
            raise ValueError("give preferences, files or demonstrations: there is nothing to pair")


DPOParts: TypeAlias = OfflineParts[DpoSettings, tuple[Preference, ...]]


def parse(config: Mapping[str, Any]) -> OfflineSettings[DpoSettings]:
    """Checks every section of a plain config."""
    settings = offline.parse(config, "dpo", DpoSettings)
    call(pair_up, "dpo.pairing", settings.learning.pairing, conversations=(), seed=0)
    return settings


@contextlib.contextmanager
def open_dpo(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, DPOParts]]:
    """Builds the job from a plain config; closes servers, threads and files at the end."""
    settings = parse(config)

    def load(run: Run, manifests: Mapping[str, Manifest]) -> Loaded[tuple[Preference, ...]]:
        episodes = supervised.load_conversations(settings.learning, run.folder, manifests, "dpo")
        preferences = load_preferences(settings.learning, episodes, seed=run.seed)
        run.console.note(f"{len(preferences)} preference pairs")
        members = [side for pair in preferences for side in (pair.chosen, pair.rejected)]
        return Loaded(tuple(preferences), members)

    with offline.open_offline(config, workdir, stop, settings, load) as opened:
        yield opened


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
