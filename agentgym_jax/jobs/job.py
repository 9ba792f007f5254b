"""Sections and components of every training job."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax

from agentgym_jax.config.agent import AgentSettings, check_drafts
from agentgym_jax.config.model import (
    CUDNN,
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    is_hybrid,
    resolve_source,
)
from agentgym_jax.config.sections import ConfigError, check, parse_section, section
from agentgym_jax.config.settings import CheckpointSettings, parse_guards
from agentgym_jax.data.conversations import Conversation, digest
from agentgym_jax.jobs.environments import Environments, check_no_tools, open_environments
from agentgym_jax.jobs.run import Run, StopFlag, open_run
from agentgym_jax.jobs.sampled_agents import SampledAgent, build_agent, build_judge, match_prompts
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.sharding import make_layouts
from agentgym_jax.telemetry.console import format_count
from agentgym_jax.telemetry.guards import GuardSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Checked config of a training job; nothing has been started, loaded or compiled yet.

    Attributes:
      logprob_chunk: Number of tokens whose logits exist at the same time.
      max_episodes: Number of episodes of the largest rollout; an evaluation may have more episodes.
    """

    model: ModelSettings
    tokenizer: TokenizerSettings
    mesh: Mapping[str, Any]
    checkpoint: CheckpointSettings
    guards: GuardSettings
    logprob_chunk: int
    title: str
    max_episodes: int = 0

    if TYPE_CHECKING:  # a property at run time would be the default of a subclass's field

        @property
        def agent(self) -> AgentSettings | None:
            """Sections of the agent; None for a job without environments."""


Settings = TypeVar("Settings", bound=JobSettings)
Data = TypeVar("Data")
SettingsOf = TypeVar("SettingsOf", bound=JobSettings, covariant=True)
DataOf = TypeVar("DataOf", covariant=True)


@dataclasses.dataclass(frozen=True)
class Parts(Generic[SettingsOf, DataOf]):
    """Components of a training job."""

    settings: SettingsOf
    model: Model
    agent: SampledAgent | None
    data: DataOf


AnyParts = Parts[JobSettings, object]


def parse_job(config: Mapping[str, Any], logprob_chunk: int, **options: Any) -> JobSettings:
    """Parses and checks `JOB_SECTIONS`; `options` are further fields of the result."""
    check(make_layouts, "mesh", section(config, "mesh"), devices=None, process_index=None)
    return JobSettings(
        model=parse_section(config, "model", ModelSettings),
        tokenizer=parse_section(config, "tokenizer", TokenizerSettings),
        mesh=section(config, "mesh"),
        checkpoint=parse_section(config, "checkpoint", CheckpointSettings),
        guards=parse_guards(config["guards"]),
        logprob_chunk=logprob_chunk,
        **options,
    )


@contextlib.contextmanager
def open_job(
    config: Mapping[str, Any],
    workdir: str,
    stop: StopFlag,
    *,
    parse: Callable[[Mapping[str, Any]], Settings],
    load: Callable[[Run, Settings, Environments | None], tuple[Data, Sequence[Conversation]]],
    build: Callable[[Parts[Settings, Data]], Any] = lambda parts: parts,
    learns_texts: Callable[[Settings], bool] = lambda settings: True,
) -> Iterator[tuple[Run, Any]]:
    """Opens a job; leaving the context closes servers, threads and files.

    `parse` checks the config. `load` returns the data of the job, and all conversations that they
    contain. `build` adds components. `learns_texts` returns True for a checked config whose job
    learns from conversations without tools.
    """
    settings = parse(config)
    agent_settings = settings.agent
    source = resolve_source(settings.model)
    layouts = build_layouts(settings.mesh, is_hybrid=is_hybrid(settings.model, source))
    if settings.model.attention == CUDNN and jax.default_backend() != "gpu":
        raise ConfigError(
            f"config.model.attention='cudnn' needs a GPU, and the devices are {jax.default_backend()}: "
            "set 'kernels'"
        )
    if agent_settings is not None:
        check_drafts(agent_settings, is_hybrid=is_hybrid(settings.model, source))
    facts = {"model": settings.model.source}
    if agent_settings is not None:
        facts["environments"] = ", ".join(agent_settings.environments)
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            open_run(config, workdir, stop, settings.checkpoint, settings.title, facts)
        )
        with processes.announcing_failures():
            environments = judge = None
            if agent_settings is not None and agent_settings.judge is not None:
                judge = build_judge(agent_settings.judge, run.folder.path)
                stack.callback(judge.endpoint.close)
            if agent_settings is not None:
                run.console.phase("starting environments", 0, 1)
                environments = open_environments(stack, agent_settings, run.folder)
                if learns_texts(settings):
                    check_no_tools(environments)
                pool = environments.pool
                run.open_sessions = lambda: pool.open_sessions
            run.console.phase("loading data", 0, 1)
            data, conversations = load(run, settings, environments)
            run.console.phase("preparing the tokenizer", 0, 1)
            texts = (message.content for c in conversations for message in c.messages)
            model = build_model(
                settings.model,
                settings.tokenizer,
                source,
                layouts,
                run.folder,
                texts,
                seed=run.seed,
            )
            parameters = format_count(model.policy.num_parameters)
            if model.adapters is not None:
                parameters += f", {format_count(model.adapters.num_parameters)} trained (LoRA)"
            run.console.fact("parameters", parameters)
            agent = None
            if agent_settings is not None and environments is not None:
                environments = match_prompts(environments, agent_settings, conversations)
                held_out = agent_settings.evaluation.episodes(len(environments.eval_tasks))
                max_episodes = max(settings.max_episodes, held_out)
                agent = build_agent(agent_settings, model, environments, max_episodes, judge)
            parts = build(Parts(settings, model, agent, data))
            # all processes have compared the folder, whose facts may now change
            if environments is not None and processes.is_writer():
                run.folder.record_tasks(environments.manifests)
            if conversations and processes.is_writer():
                run.folder.record_data(digest(conversations))
        yield run, parts
