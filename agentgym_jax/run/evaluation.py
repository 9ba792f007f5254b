"""The parts of an evaluation: of a model of ours, a scripted player, or a chat endpoint."""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from agentgym_jax.console import RunConsole
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.guided import ExpertClient, ValidActionsClient
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.native import library
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.run.environments import (
    Environments,
    EnvironmentSettings,
    TransportSettings,
    check_playable,
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
from agentgym_jax.run.sampling import build_collector, check_sampler
from agentgym_jax.run.sections import ConfigError, call, check, no_such_key, section
from agentgym_jax.run.settings import EndpointSettings, EvaluationSettings, RolloutSettings, Seed
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.sampling.sampler import Sampler, SamplingOptions
from agentgym_jax.sharding import make_mesh

_SECTIONS = (
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
    "endpoint",
)
# What may change when an evaluation goes on: nothing that an episode depends on.
_ADJUSTABLE = (
    "env.*",
    "environments.*.url",
    "client.*",
    "pool.*",
    "endpoint.workers",
    "endpoint.*_s",
)
_FINGERPRINT_BYTES = 1024 * 1024  # of the start and of the end of every file


class Contestant(enum.StrEnum):
    """What `--model` names."""

    MODEL = "model"  # weights, played by our sampler
    EXPERT = "expert"  # the scripted player of each environment
    RANDOM = "random"  # any valid action
    ENDPOINT = "endpoint"  # an OpenAI-compatible chat endpoint


_CLIENTS: Mapping[Contestant, type[EnvClient]] = {
    Contestant.MODEL: EnvClient,
    Contestant.EXPERT: ExpertClient,
    Contestant.RANDOM: ValidActionsClient,
    Contestant.ENDPOINT: EnvClient,
}


def contestant(model: str) -> Contestant:
    """`expert`, `random`, an http(s) address, or anything that `models.sources` finds."""
    if model in (Contestant.EXPERT, Contestant.RANDOM):
        return Contestant(model)
    return Contestant.ENDPOINT if "://" in model else Contestant.MODEL


@dataclasses.dataclass(frozen=True)
class EvaluationParts:
    """Everything that an evaluation computes with, whoever plays.

    Attributes:
      name: of the contestant, as the user gave it.
      contestant: which kind it is.
      seed: of the draws.
      folder: where the results go.
      console: shows progress.
      environments: servers, pool, tasks.
      task_lists: environment -> the server's task list.
      sampling: of the sampled episodes.
      evaluation: samples, greedy.
      rollout: attempts, what the agent is told.
      endpoint: the section endpoint.
      max_turns: of an episode, by environment.
      identity: of the weights or of the script, as JSON.
      run_folder: of the training run that is evaluated; None if it is none.
    """

    name: str
    contestant: Contestant
    seed: int
    folder: RunFolder
    console: RunConsole
    environments: Environments
    task_lists: Mapping[str, Sequence[Mapping[str, Any]]]
    sampling: SamplingOptions
    evaluation: EvaluationSettings
    rollout: RolloutSettings
    endpoint: EndpointSettings
    max_turns: Mapping[str, int]
    identity: Mapping[str, Any]
    run_folder: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class ModelParts:
    """A model of ours and what it plays with.

    Attributes:
      model: policy, tokenizer, renderer.
      sampler: without weights yet.
      collector: runs episodes.
      decode_shardings: where the sampler's weights live; None on a single device.
    """

    model: Model
    sampler: Sampler
    collector: Collector
    decode_shardings: Any


@dataclasses.dataclass(frozen=True)
class _Settings:
    model: ModelSettings | None  # None if no weights are played with
    tokenizer: TokenizerSettings
    env: TransportSettings
    environments: Mapping[str, EnvironmentSettings]
    rollout: RolloutSettings
    sampling: SamplingOptions
    evaluation: EvaluationSettings
    endpoint: EndpointSettings


def _seeded(seed: Seed) -> None:
    """Keys of an evaluation outside sections."""


def parse(config: Mapping[str, Any]) -> _Settings:
    """Checks every section of a plain config."""
    known = ("seed", *_SECTIONS)
    for name in config:
        if name not in known:
            raise ConfigError(no_such_key(name, known))
    part = functools.partial(section, config)
    check(_seeded, "", {name: config[name] for name in ("seed",) if name in config})
    check(make_mesh, "mesh", part("mesh"), devices=None)
    has_weights = contestant(part("model")["source"]) is Contestant.MODEL
    settings = _Settings(
        model=call(ModelSettings, "model", part("model")) if has_weights else None,
        tokenizer=call(TokenizerSettings, "tokenizer", part("tokenizer")),
        env=call(TransportSettings, "env", part("env")),
        environments=parse_settings(part("environments")),
        rollout=call(RolloutSettings, "rollout", part("rollout")),
        sampling=call(SamplingOptions, "sampling", part("sampling")),
        evaluation=call(EvaluationSettings, "evaluation", part("evaluation")),
        endpoint=call(EndpointSettings, "endpoint", part("endpoint")),
    )
    check_sampler(part("sampler"), settings.sampling)
    check_playable(settings.environments, part("client"), part("pool"), settings.rollout.opening)
    return settings


def run_folder(config: Mapping[str, Any]) -> pathlib.Path | None:
    """Returns the training run that `config.model.source` names; None for anything else."""
    if contestant(config["model"]["source"]) is not Contestant.MODEL:
        return None
    source = resolve_source(call(ModelSettings, "model", config["model"]))
    return source.path if source is not None and source.kind == "workdir" else None


def only(config: Mapping[str, Any], environments: Sequence[str]) -> dict[str, Any]:
    """The config with some of its environments; with all of them if none is named.

    Raises:
      ConfigError: it does not have one of them.
    """
    known = config["environments"]
    unknown = sorted(set(environments) - set(known))
    if unknown:
        raise ConfigError(
            f"--environments: the config has no {unknown[0]!r}; it has {', '.join(known)}"
        )
    kept = {name: known[name] for name in known if not environments or name in environments}
    return {**config, "environments": kept}


def scripted(settings: EvaluationSettings, who: Contestant) -> EvaluationSettings:
    """How often a player without a temperature plays: the expert does the same every time."""
    if who is Contestant.EXPERT:
        return dataclasses.replace(settings, samples=1, greedy=False)
    if who is Contestant.RANDOM:
        return dataclasses.replace(settings, samples=max(1, settings.samples), greedy=False)
    return settings


@contextlib.contextmanager
def open_evaluation(config: Mapping[str, Any], workdir: str) -> Iterator[EvaluationParts]:
    """Takes the folder and starts the servers; closes servers, threads and files at the end."""
    settings = parse(config)
    name = config["model"]["source"]
    who = contestant(name)
    source = None if settings.model is None else resolve_source(settings.model)
    devices = [f"{d.platform} {d.device_kind}" for d in jax.devices()]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(RunFolder(workdir))
        try:
            folder.start(
                config,
                devices=devices,
                machine=library.machine(),
                adjustable=_ADJUSTABLE,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        stack.callback(folder.withdraw)
        facts = {"model": name, "environments": ", ".join(config["environments"])}
        console = stack.enter_context(RunConsole("evaluation", facts, 1))
        environments = open_environments(
            stack,
            settings.environments,
            folder,
            transport=settings.env,
            client_options=config["client"],
            pool_options=config["pool"],
            opening=settings.rollout.opening,
            client_class=_CLIENTS[who],
        )
        if who in (Contestant.EXPERT, Contestant.RANDOM):
            _check_ours(environments.manifests, who)
        yield EvaluationParts(
            name=name,
            contestant=who,
            seed=config["seed"],
            folder=folder,
            console=console,
            environments=environments,
            task_lists={name: client.tasks() for name, client in environments.clients.items()},
            sampling=settings.sampling,
            evaluation=scripted(settings.evaluation, who),
            rollout=settings.rollout,
            endpoint=settings.endpoint,
            max_turns=evaluation_turns(settings.environments, settings.evaluation.max_turns),
            identity={"name": name} if source is None else _fingerprint(source),
            run_folder=source.path if source is not None and source.kind == "workdir" else None,
        )


def build_players(config: Mapping[str, Any], parts: EvaluationParts) -> ModelParts:
    """The model that `--model` names, with decode rows for the whole evaluation."""
    settings = parse(config)
    if settings.model is None:
        raise ValueError(f"{parts.name} has no weights")
    source = resolve_source(settings.model)
    tokenizer = build_tokenizer(settings.tokenizer, source, parts.folder, ())
    layouts = build_layouts(config["mesh"])
    model = build_model(settings.model, source, tokenizer, layouts, parts.folder)
    sampler, collector = build_collector(
        config["sampler"],
        settings.rollout,
        model,
        parts.environments,
        # All episodes, also when some are done: the shape of a call decides the last digits.
        settings.evaluation.episodes(len(parts.environments.eval_tasks)),
    )
    return ModelParts(
        model=model,
        sampler=sampler,
        collector=collector,
        decode_shardings=model.decode_policy.param_shardings(model.decode_layout),
    )


def _check_ours(manifests: Mapping[str, str], who: Contestant) -> None:
    """AgentGym's own servers have neither an expert nor a list of valid actions."""
    foreign = [name for name, sha256 in manifests.items() if not sha256]
    if foreign:
        raise ConfigError(
            f"--model={who} asks the server what to do, and the server of {foreign[0]} is not one of "
            f"agentgym_envs; set config.environments.{foreign[0]}.url='' to start ours"
        )


def _fingerprint(source: ModelSource) -> dict[str, Any]:
    """Which weights these are: the checkpoint of a run, or sizes and both ends of the files."""
    facts: dict[str, Any] = {"name": source.model, "kind": source.kind}
    if source.path is None:
        return facts
    if source.kind == "workdir":
        with Checkpoints(source.path / "checkpoints", max_to_keep=1, read_only=True) as found:
            return facts | {"step": found.latest_step()}
    paths = [source.path] if source.path.is_file() else sorted(source.path.glob("*.safetensors"))
    hashed = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        hashed.update(f"{path.name} {size}\n".encode())
        with open(path, "rb") as file:
            hashed.update(file.read(_FINGERPRINT_BYTES))
            file.seek(max(0, size - _FINGERPRINT_BYTES))
            hashed.update(file.read())
    return facts | {"weights": hashed.hexdigest()[:16]}
