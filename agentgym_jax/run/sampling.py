"""Sampler and collector from the sections sampler and rollout."""

from collections.abc import Mapping
from typing import Any, Protocol

from agentgym_jax.rollout.collect import Collector
from agentgym_jax.run.environments import Environments
from agentgym_jax.run.model import Model
from agentgym_jax.run.sections import ConfigError, call, check
from agentgym_jax.sampling.sampler import Sampler, SamplingOptions, checked_buckets


class Attempts(Protocol):
    """What a collector is told by the section rollout of any job; see RolloutSettings."""

    @property
    def prefetch(self) -> int:
        """Episodes reset ahead of a free row."""

    @property
    def max_attempts(self) -> int:
        """Starts of an episode whose environment fails, the first included."""

    @property
    def max_replacements(self) -> int:
        """Other samples tried after that."""

    @property
    def tell_budget(self) -> str:
        """What the agent is told of its turns."""


def check_sampler(options: Mapping[str, Any], sampling: SamplingOptions) -> None:
    """Checks the section sampler, and that the longest episode fits.

    Args:
      options: Section sampler.
      sampling: The checked section sampling.
    """
    check(Sampler, "sampler", options, policy=None, stop_ids=())
    try:
        checked_buckets(options["buckets"], options["cache_length"])
    except ValueError as error:
        raise ConfigError(f"config.{error}") from error
    if sampling.max_tokens > options["cache_length"]:
        raise ConfigError(
            f"config.sampling.max_tokens={sampling.max_tokens} exceeds "
            f"config.sampler.cache_length={options['cache_length']}: an episode must fit"
        )
    if sampling.max_turn_tokens >= sampling.max_tokens:
        raise ConfigError(
            f"config.sampling.max_turn_tokens={sampling.max_turn_tokens} leaves no room for a "
            f"prompt within config.sampling.max_tokens={sampling.max_tokens}"
        )


def build_collector(
    sampler_options: Mapping[str, Any],
    rollout: Attempts,
    model: Model,
    environments: Environments,
    most_episodes: int,
) -> tuple[Sampler, Collector]:
    """Decode rows without weights yet, and what runs episodes on them.

    Args:
      sampler_options: section sampler.
      rollout: section rollout.
      model: policy that decodes, tokenizer, renderer.
      environments: where episodes are played.
      most_episodes: of any collection; further rows would stay empty and are not made.
    """
    layout = model.decode_policy.layout
    shards = layout.shards("batch") if layout is not None else 1
    useful_rows = -(-most_episodes // shards) * shards
    options = dict(sampler_options)
    if "rows" in options:  # a missing key is for `call` to name
        options["rows"] = min(options["rows"], useful_rows)
    sampler = call(
        Sampler,
        "sampler",
        options,
        policy=model.decode_policy,
        stop_ids=model.renderer.stop_ids,
    )
    collector = Collector(
        sampler,
        environments.pool,
        model.renderer,
        model.tokenizer.decode,
        environments.texts,
        prefetch=rollout.prefetch,
        max_attempts=rollout.max_attempts,
        max_replacements=rollout.max_replacements,
        tell_budget=rollout.tell_budget,
        revive=environments.revive,
    )
    return sampler, collector
