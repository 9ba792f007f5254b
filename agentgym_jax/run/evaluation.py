"""The parts of an evaluation of one model."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from agentgym_jax.console import RunConsole
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.run.environments import (
    Environments,
    EnvironmentSettings,
    TransportSettings,
    evaluation_turns,
    open_environments,
    parse_settings,
)
from agentgym_jax.run.model import (
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    build_tokenizer,
    resolve_source,
)
from agentgym_jax.run.run import StopFlag
from agentgym_jax.run.sampling import build_collector
from agentgym_jax.run.sections import ConfigError, call, section
from agentgym_jax.run.settings import EvaluationSettings, RolloutSettings
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.sampling.sampler import Sampler, SamplingOptions

_TOP = (
    "seed",
    "model",
    "tokenizer",
    "mesh",
    "env",
    "environments",
    "client",
    "pool",
    "sampler",
    "sampling",
    "rollout",
    "evaluation",
)


@dataclasses.dataclass(frozen=True)
class EvaluationParts:
    """Everything that an evaluation computes with.

    Attributes:
      name: of the model, as the user gave it.
      seed: of the draws.
      folder: where the results go.
      console: shows progress.
      model: policy, tokenizer, renderer.
      environments: servers, pool, tasks.
      sampler: without weights yet.
      collector: runs episodes.
      sampling: of the sampled episodes.
      evaluation: samples, greedy.
      max_turns: of an episode, by environment.
      max_invalid_actions: see RolloutSettings.
      decode_shardings: where the sampler's weights live; None on a single device.
    """

    name: str
    seed: int
    folder: RunFolder
    console: RunConsole
    model: Model
    environments: Environments
    sampler: Sampler
    collector: Collector
    sampling: SamplingOptions
    evaluation: EvaluationSettings
    max_turns: Mapping[str, int]
    max_invalid_actions: int
    decode_shardings: Any


@dataclasses.dataclass(frozen=True)
class _Settings:
    model: ModelSettings
    tokenizer: TokenizerSettings
    env: TransportSettings
    environments: Mapping[str, EnvironmentSettings]
    rollout: RolloutSettings
    sampling: SamplingOptions
    evaluation: EvaluationSettings


def parse(config: Mapping[str, Any]) -> _Settings:
    """Checks every section of a plain config."""
    unknown = sorted(set(config) - set(_TOP))
    if unknown:
        raise ConfigError(f"config.{unknown[0]}: there is no such key. Known: {', '.join(_TOP)}")
    part = functools.partial(section, config)
    settings = _Settings(
        model=call(ModelSettings, "model", part("model")),
        tokenizer=call(TokenizerSettings, "tokenizer", part("tokenizer")),
        env=call(TransportSettings, "env", part("env")),
        environments=parse_settings(part("environments")),
        rollout=call(RolloutSettings, "rollout", part("rollout")),
        sampling=call(SamplingOptions, "sampling", part("sampling")),
        evaluation=call(EvaluationSettings, "evaluation", part("evaluation")),
    )
    if settings.sampling.max_tokens > config["sampler"]["cache_length"]:
        raise ConfigError(
            f"config.sampling.max_tokens={settings.sampling.max_tokens} exceeds "
            f"config.sampler.cache_length={config['sampler']['cache_length']}: an episode must fit"
        )
    return settings


@contextlib.contextmanager
def open_evaluation(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[EvaluationParts]:
    """Builds an evaluation from a plain config; closes servers, threads and files at the end."""
    settings = parse(config)
    source = resolve_source(settings.model)
    layouts = build_layouts(config["mesh"])
    devices = [f"{d.platform} {d.device_kind}" for d in jax.devices()]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(RunFolder(workdir))
        folder.start(
            config, devices=devices, adjustable=("environments.*.url", "client.*", "pool.*")
        )
        facts = {"model": settings.model.source, "environments": ", ".join(config["environments"])}
        console = stack.enter_context(RunConsole("evaluation", facts, 1))
        environments = open_environments(
            stack,
            settings.environments,
            folder,
            transport=settings.env,
            client_options=config["client"],
            pool_options=config["pool"],
            opening=settings.rollout.opening,
        )
        tokenizer = build_tokenizer(settings.tokenizer, source, folder, ())
        model = build_model(settings.model, source, tokenizer, layouts, folder)
        sampler, collector = build_collector(
            config["sampler"],
            settings.rollout,
            model,
            environments,
            settings.evaluation.episodes(len(environments.eval_tasks)),
        )
        yield EvaluationParts(
            name=settings.model.source,
            seed=config["seed"],
            folder=folder,
            console=console,
            model=model,
            environments=environments,
            sampler=sampler,
            collector=collector,
            sampling=settings.sampling,
            evaluation=settings.evaluation,
            max_turns=evaluation_turns(settings.environments, settings.evaluation.max_turns),
            max_invalid_actions=settings.rollout.max_invalid_actions,
            decode_shardings=model.decode_policy.param_shardings(model.decode_layout),
        )
