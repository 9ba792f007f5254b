"""Sections and components of every training job."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import message_texts
from agentgym_jax.jobs.agents import SampledAgent, build_agent, match_prompts
from agentgym_jax.jobs.config.agent import AgentSettings
from agentgym_jax.jobs.config.model import (
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    build_tokenizer,
    resolve_source,
)
from agentgym_jax.jobs.config.sections import ConfigError, check, parse_section, section
from agentgym_jax.jobs.config.settings import CheckpointSettings, parse_guards
from agentgym_jax.jobs.environments import Environments, open_environments
from agentgym_jax.jobs.run import Run, StopFlag, open_run
from agentgym_jax.sharding import make_mesh
from agentgym_jax.telemetry.console import format_count
from agentgym_jax.telemetry.guards import GuardSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Checked sections of every training job; nothing has been started, loaded or compiled yet.

    Attributes:
      logprob_chunk: Number of tokens whose logits exist at the same time.
    """

    model: ModelSettings
    tokenizer: TokenizerSettings
    mesh: Mapping[str, Any]
    checkpoint: CheckpointSettings
    guards: GuardSettings
    logprob_chunk: int


@dataclasses.dataclass(frozen=True)
class Parts:
    """Components of a training job.

    Attributes:
      settings: Checked config.
      model: Policies, tokenizer and renderer.
      agent: Agent in the environments; None for a job without environments.
      data: Data of the job.
    """

    settings: JobSettings
    model: Model
    agent: SampledAgent | None
    data: Any


def parse_job(config: Mapping[str, Any], logprob_chunk: int) -> JobSettings:
    """Parses and checks `JOB_SECTIONS` of a plain config."""
    check(make_mesh, "mesh", section(config, "mesh"), devices=None)
    return JobSettings(
        model=parse_section(config, "model", ModelSettings),
        tokenizer=parse_section(config, "tokenizer", TokenizerSettings),
        mesh=section(config, "mesh"),
        checkpoint=parse_section(config, "checkpoint", CheckpointSettings),
        guards=parse_guards(config["guards"]),
        logprob_chunk=logprob_chunk,
    )


@contextlib.contextmanager
def open_job(
    config: Mapping[str, Any],
    workdir: str,
    stop: StopFlag,
    settings: JobSettings,
    agent_settings: AgentSettings | None,
    load: Callable[[Run, Environments | None], tuple[Any, Sequence[Conversation]]],
    *,
    title: str,
    max_episodes: int = 0,
    one_device_for: str = "",
) -> Iterator[tuple[Run, Parts]]:
    """Opens a job from its checked config; leaving the context closes servers, threads and files.

    Args:
      config: Plain config.
      workdir: Run folder.
      stop: Flag that a request to stop sets.
      settings: Checked config.
      agent_settings: Checked sections of the agent; None without environments.
      load: Function that returns the data of the job, and all conversations that they contain.
      title: Title of the console.
      max_episodes: Number of episodes of the largest rollout; an evaluation may have more episodes.
      one_device_for: Name of the config key that requires a mesh of one device; empty for none.
    """
    source = resolve_source(settings.model)
    layouts = build_layouts(settings.mesh)
    if one_device_for and layouts != (None, None):
        raise ConfigError(
            f"config.{one_device_for} needs a mesh of one device: learner and sampler would start "
            "programs on several devices in different orders, which may deadlock"
        )
    facts = {"model": settings.model.source}
    if agent_settings is not None:
        facts["environments"] = ", ".join(agent_settings.environments)
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            open_run(config, workdir, settings.checkpoint, title=title, facts=facts, stop=stop)
        )
        environments = None
        if agent_settings is not None:
            run.console.phase("starting environments", 0, 1)
            environments = open_environments(stack, agent_settings, run.folder)
            pool = environments.pool
            run.open_sessions = lambda: pool.open_sessions
        run.console.phase("loading data", 0, 1)
        data, conversations = load(run, environments)
        run.console.phase("preparing the tokenizer", 0, 1)
        texts = message_texts(conversations)
        tokenizer = build_tokenizer(settings.tokenizer, source, run.folder, texts)
        model = build_model(settings.model, source, tokenizer, layouts, run.folder)
        run.console.fact("parameters", format_count(model.policy.config.num_parameters))
        agent = None
        if agent_settings is not None and environments is not None:
            environments = match_prompts(environments, agent_settings, conversations)
            held_out = agent_settings.evaluation.episodes(len(environments.eval_tasks))
            agent = build_agent(agent_settings, model, environments, max(max_episodes, held_out))
        run.folder.begin()
        yield run, Parts(settings, model, agent, data)
