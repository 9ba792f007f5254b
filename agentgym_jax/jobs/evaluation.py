"""Components of an evaluation job: agent, environments, result folder."""

import contextlib
import dataclasses
import enum
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.oracle_clients import ExpertClient, ValidActionsClient
from agentgym_jax.config.agent import AgentSettings, check_drafts, parse_agent
from agentgym_jax.config.model import (
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    resolve_source,
)
from agentgym_jax.config.sections import (
    ALL_AGENT_SECTIONS,
    ConfigError,
    check,
    parse_section,
    section,
)
from agentgym_jax.config.settings import EvaluationSettings, RolloutSettings, Seed, check_top
from agentgym_jax.evaluation.text_agents import EndpointSettings
from agentgym_jax.jobs.environments import Environments, open_environments
from agentgym_jax.jobs.run import open_folder
from agentgym_jax.jobs.sampled_agents import SampledAgent, build_agent
from agentgym_jax.learner.stored_weights import fingerprint
from agentgym_jax.mesh.sharding import make_layouts
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.runs import bucket
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.console import RunConsole

# Keys that may change when an evaluation is resumed, because episodes do not depend on them.
_ADJUSTABLE = (
    "env_server.*",
    "environments.*.url",
    "client.*",
    "pool.*",
    "endpoint.workers",
    "endpoint.*_s",
)


class AgentKind(enum.StrEnum):
    """Kinds of agents that `--model` can name."""

    MODEL = "model"  # model weights, sampled by this package
    EXPERT = "expert"  # the scripted agent of each environment
    RANDOM = "random"  # an agent that samples valid actions
    ENDPOINT = "endpoint"  # an OpenAI-compatible chat endpoint


_CLIENTS = {AgentKind.EXPERT: ExpertClient, AgentKind.RANDOM: ValidActionsClient}


def find_agent_kind(model: object) -> AgentKind:
    """Returns the kind of agent that `model` names; a wrong type counts as the name of a model."""
    if not isinstance(model, str):
        return AgentKind.MODEL
    if model in (AgentKind.EXPERT, AgentKind.RANDOM):
        return AgentKind(model)
    return AgentKind.ENDPOINT if "://" in model else AgentKind.MODEL


@dataclasses.dataclass(frozen=True)
class EvaluationParts:
    """All components of an evaluation, for every kind of agent.

    Attributes:
      name: Value of the flag `--model`.
      task_lists: Task lists of the servers, by environment.
      evaluation: Section `evaluation`, adapted to the kind of agent.
      identity: JSON object that identifies the weights or the scripted agent.
      run_folder: Evaluated training run; None for other models.
      source: Evaluated model; None for agents without weights, and for random weights.
    """

    name: str
    kind: AgentKind
    seed: int
    folder: RunFolder
    console: RunConsole
    environments: Environments
    task_lists: Mapping[str, Sequence[Mapping[str, Any]]]
    evaluation: EvaluationSettings
    identity: Mapping[str, Any]
    run_folder: pathlib.Path | None
    settings: "_Settings"
    source: ModelSource | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings(AgentSettings):
    rollout: RolloutSettings
    model: ModelSettings | None  # None for agents without weights
    tokenizer: TokenizerSettings
    endpoint: EndpointSettings


def _top_level(seed: Seed) -> None:
    """Declares the keys of an evaluation config outside sections."""


def parse(config: Mapping[str, Any]) -> _Settings:
    """Parses a plain config and checks all its sections."""
    check_top(config, ("model", "tokenizer", "mesh", "endpoint", *ALL_AGENT_SECTIONS), _top_level)
    check(make_layouts, "mesh", section(config, "mesh"), devices=None, process_index=None)
    has_weights = find_agent_kind(section(config, "model").get("source")) is AgentKind.MODEL
    return _Settings(
        **vars(parse_agent(config, RolloutSettings)),
        model=parse_section(config, "model", ModelSettings) if has_weights else None,
        tokenizer=parse_section(config, "tokenizer", TokenizerSettings),
        endpoint=parse_section(config, "endpoint", EndpointSettings),
    )


def run_folder(config: Mapping[str, Any]) -> pathlib.Path | None:
    """Returns the run folder that `config.model.source` names; None for other sources."""
    if find_agent_kind(config["model"]["source"]) is not AgentKind.MODEL:
        return None
    source = resolve_source(parse_section(config, "model", ModelSettings))
    return source.path if source is not None and source.kind == "workdir" else None


def select_environments(config: Mapping[str, Any], environments: Sequence[str]) -> dict[str, Any]:
    """Returns the config with only the named environments; without names, with all environments."""
    known = config["environments"]
    unknown = sorted(set(environments) - set(known))
    if unknown:
        raise ConfigError(
            f"--environments: the config has no {unknown[0]!r}; it has {', '.join(known)}"
        )
    kept = {name: known[name] for name in known if not environments or name in environments}
    return {**config, "environments": kept}


def adapt_samples(settings: EvaluationSettings, kind: AgentKind) -> EvaluationSettings:
    """Returns the settings adapted to agents without a temperature: never a greedy episode."""
    if kind is AgentKind.EXPERT:
        return dataclasses.replace(settings, samples=1, greedy=False)
    if kind is AgentKind.RANDOM:
        return dataclasses.replace(settings, samples=max(1, settings.samples), greedy=False)
    return settings


@contextlib.contextmanager
def open_evaluation(config: Mapping[str, Any], workdir: str) -> Iterator[EvaluationParts]:
    """Locks the folder and starts the servers; leaving the context closes both."""
    if bucket.is_url(workdir):
        raise ConfigError(f"--workdir={workdir}: an evaluation needs a local folder")
    settings = parse(config)
    name = config["model"]["source"]
    kind = find_agent_kind(name)
    source = None if settings.model is None else resolve_source(settings.model)
    if source is not None and source.config.hybrid is not None:
        build_layouts(config["mesh"], is_hybrid=True)  # refuses several devices
        check_drafts(settings, is_hybrid=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(open_folder(config, workdir, _ADJUSTABLE))
        facts = {"model": name, "environments": ", ".join(config["environments"])}
        console = stack.enter_context(RunConsole("evaluation", facts, 1))
        environments = open_environments(
            stack,
            settings,
            folder,
            _CLIENTS.get(kind, EnvClient),
            tools_as_text=kind is not AgentKind.MODEL,
        )
        if kind in _CLIENTS:
            _check_servers(environments.manifests, kind)
        yield EvaluationParts(
            name=name,
            kind=kind,
            seed=config["seed"],
            folder=folder,
            console=console,
            environments=environments,
            task_lists={name: client.tasks() for name, client in environments.clients.items()},
            evaluation=adapt_samples(settings.evaluation, kind),
            identity={"name": name} if source is None else fingerprint(source),
            run_folder=None if source is None else _training_run(source),
            settings=settings,
            source=source,
        )


def build_evaluated_agent(config: Mapping[str, Any], parts: EvaluationParts) -> SampledAgent:
    """Builds the agent of the model that `--model` names, with its weights."""
    settings, layouts = parts.settings, build_layouts(config["mesh"])
    assert settings.model is not None, f"{parts.name} has no weights"
    model = build_model(
        settings.model,
        settings.tokenizer,
        parts.source,
        layouts,
        parts.folder,
        (),
        seed=parts.seed,
    )
    # Episodes finished before a resume count too, because the number of rows affects the last
    # digits of the logits.
    episodes = settings.evaluation.episodes(len(parts.environments.eval_tasks))
    agent = build_agent(settings, model, parts.environments, episodes)
    agent.set_params(model.initial_params(), version=0)
    return agent


def _check_servers(manifests: Mapping[str, str], kind: AgentKind) -> None:
    """Raises ConfigError for AgentGym's original servers, which do not offer actions."""
    foreign = [name for name, sha256 in manifests.items() if not sha256]
    if foreign:
        raise ConfigError(
            f"--model={kind} asks the server for its actions, and the server of {foreign[0]} is not "
            f"one of agentgym_envs; set config.environments.{foreign[0]}.url='' to start ours"
        )


def _training_run(source: ModelSource) -> pathlib.Path | None:
    """Returns the run folder of a source with all trajectories; None for other sources."""
    if source.kind == "workdir" and bucket.is_url(source.model):
        return bucket.local_copy(source.model, with_trajectories=True)
    return source.path if source.kind == "workdir" else None
