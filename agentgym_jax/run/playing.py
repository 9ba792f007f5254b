"""What a job that learns offline needs to play episodes: to explore, or to evaluate."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.models.policy import Policy
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run.environments import (
    Environments,
    EnvironmentSettings,
    TransportSettings,
    check_playable,
    evaluation_turns,
    open_environments,
    parse_settings,
)
from agentgym_jax.run.model import Model
from agentgym_jax.run.sampling import build_collector, check_sampler
from agentgym_jax.run.sections import ConfigError, call, section
from agentgym_jax.run.settings import EvaluationSettings, PlaySettings
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.sampling.sampler import Sampler, SamplingOptions

SECTIONS = ("env", "environments", "client", "pool", "sampler", "sampling", "rollout", "evaluation")

# An opening that is taken from the conversations of an environment; those without any get `system`.
_AS_DATA = "data"


@dataclasses.dataclass(frozen=True)
class PlayingSettings:
    """The checked sections of SECTIONS; nothing is started yet."""

    env: TransportSettings
    environments: Mapping[str, EnvironmentSettings]
    client: Mapping[str, Any]
    pool: Mapping[str, Any]
    sampler: Mapping[str, Any]
    sampling: SamplingOptions
    rollout: PlaySettings
    evaluation: EvaluationSettings

    @property
    def evaluation_turns(self) -> dict[str, int]:
        """Turn limit of a held-out episode by environment."""
        return evaluation_turns(self.environments, self.evaluation.max_turns)


@dataclasses.dataclass(frozen=True)
class Players:
    """What episodes are played with.

    Attributes:
      settings: the checked sections.
      environments: servers, clients, pool, tasks.
      sampler: decode rows; gets its weights from the learner.
      collector: runs episodes.
      policy: that decodes.
      shardings: where the sampler's weights live; None on a single device.
    """

    settings: PlayingSettings
    environments: Environments
    sampler: Sampler
    collector: Collector
    policy: Policy
    shardings: Any


def parse(config: Mapping[str, Any], **evaluation: Any) -> PlayingSettings:
    """Checks the sections of a plain config.

    Args:
      config: the whole of it.
      evaluation: keys of the section evaluation that the job sets itself.

    Raises:
      ConfigError: a section or key is missing, unknown or impossible.
    """
    part = functools.partial(section, config)
    settings = PlayingSettings(
        env=call(TransportSettings, "env", part("env")),
        environments=parse_settings(part("environments")),
        client=part("client"),
        pool=part("pool"),
        sampler=part("sampler"),
        sampling=call(SamplingOptions, "sampling", part("sampling")),
        rollout=call(PlaySettings, "rollout", part("rollout")),
        evaluation=call(EvaluationSettings, "evaluation", part("evaluation"), **evaluation),
    )
    check_sampler(settings.sampler, settings.sampling)
    check_playable(settings.environments, settings.client, settings.pool, settings.rollout.opening)
    return settings


def open_playing(
    stack: contextlib.ExitStack, settings: PlayingSettings, folder: RunFolder
) -> Environments:
    """Starts the servers that have no URL and connects; `stack` closes what was opened."""
    opening = settings.rollout.opening
    return open_environments(
        stack,
        settings.environments,
        folder,
        transport=settings.env,
        client_options=settings.client,
        pool_options=settings.pool,
        opening="system" if opening == _AS_DATA else opening,
    )


def with_openings(
    environments: Environments,
    settings: PlayingSettings,
    conversations: Sequence[Conversation],
) -> Environments:
    """The environments with the opening that the policy is taught, if the config says so."""
    if settings.rollout.opening != _AS_DATA:
        return environments
    found = supervised.openings(conversations)
    for name in sorted(set(environments.texts) - set(found)):
        logging.warning("no conversation on %s: its episodes open with its instructions", name)
    texts = {
        name: dataclasses.replace(text, preamble=found[name]) if name in found else text
        for name, text in environments.texts.items()
    }
    return dataclasses.replace(environments, texts=texts)


def preambles(
    environments: Environments, settings: PlayingSettings
) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """What stands in front of conversations that are to open as the run's episodes do."""
    if settings.rollout.opening == _AS_DATA:
        return {}  # they open so already
    return {name: text.preamble for name, text in environments.texts.items()}


def check_held_out(environments: Environments, conversations: Sequence[Conversation]) -> None:
    """No task may be learned from and evaluated."""
    held_out = {task.item_id for task in environments.eval_tasks}
    shared = sorted(held_out & {canonical_item_id(c.item_id) for c in conversations})
    if shared:
        raise ConfigError(
            f"{len(shared)} held-out tasks are also in the data to learn from, such as {shared[0]}; "
            "choose other tasks in config.environments.<name>.eval, or other data"
        )


def build_players(
    settings: PlayingSettings, model: Model, environments: Environments, explored: int = 0
) -> Players:
    """Decode rows without weights yet, and what runs episodes on them.

    Args:
      settings: the checked sections.
      model: policy that decodes, tokenizer, renderer.
      environments: as opened.
      explored: most episodes that are played at once beside those of an evaluation.
    """
    held_out = settings.evaluation.episodes(len(environments.eval_tasks))
    sampler, collector = build_collector(
        settings.sampler, settings.rollout, model, environments, max(explored, held_out, 1)
    )
    return Players(
        settings=settings,
        environments=environments,
        sampler=sampler,
        collector=collector,
        policy=model.decode_policy,
        shardings=model.decode_policy.param_shardings(model.decode_layout),
    )
