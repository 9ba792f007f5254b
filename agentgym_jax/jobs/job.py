"""Components common to all training jobs: checked sections, run, model and agent."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from agentgym_jax.data.conversations import Conversation
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
from agentgym_jax.jobs.config.sections import ConfigError, call, check, section
from agentgym_jax.jobs.config.settings import CheckpointSettings, parse_guards
from agentgym_jax.jobs.environments import Environments, open_environments
from agentgym_jax.jobs.run import Run, StopFlag, open_run
from agentgym_jax.sharding import make_mesh
from agentgym_jax.telemetry.guards import GuardSettings

SECTIONS = ("model", "tokenizer", "mesh", "checkpoint")

D = TypeVar("D")


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
class Loaded(Generic[D]):
    """Data of a job, and all conversations that they contain."""

    data: D
    conversations: Sequence[Conversation]


@dataclasses.dataclass(frozen=True)
class OpenJob(Generic[D]):
    """An open job: run, model, agent and data.

    Attributes:
      run: Folder, console, metrics and checkpoints.
      model: Policies, tokenizer and renderer.
      agent: Agent in the environments; None for a job without environments.
      data: Data of the job.
    """

    run: Run
    model: Model
    agent: SampledAgent | None
    data: D


def parse_job(config: Mapping[str, Any], logprob_chunk: int) -> JobSettings:
    """Parses the sections of every training job and checks their values.

    Raises:
      ConfigError: A key is unknown, missing or invalid; the message names it.
    """
    part = functools.partial(section, config)
    check(make_mesh, "mesh", part("mesh"), devices=None)
    return JobSettings(
        model=call(ModelSettings, "model", part("model")),
        tokenizer=call(TokenizerSettings, "tokenizer", part("tokenizer")),
        mesh=part("mesh"),
        checkpoint=call(CheckpointSettings, "checkpoint", part("checkpoint")),
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
    load: Callable[[Run, Environments | None], Loaded[D]],
    *,
    title: str,
    max_episodes: int = 0,
    one_device_for: str = "",
) -> Iterator[OpenJob[D]]:
    """Opens a job from its checked config; leaving the context closes servers, threads and files.

    Args:
      config: Plain config.
      workdir: Run folder.
      stop: Flag that a request to stop sets.
      settings: Checked sections of the job.
      agent_settings: Checked sections of the agent; None without environments.
      load: Function that loads the data, given the run and the environments.
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
            run.watch(environments)
        run.console.phase("loading data", 0, 1)
        loaded = load(run, environments)
        run.console.phase("preparing the tokenizer", 0, 1)
        texts = (message.content for c in loaded.conversations for message in c.messages)
        tokenizer = build_tokenizer(settings.tokenizer, source, run.folder, texts)
        model = build_model(settings.model, source, tokenizer, layouts, run.folder)
        run.show_size(model.policy.num_parameters)
        agent = None
        if agent_settings is not None and environments is not None:
            environments = match_prompts(environments, agent_settings, loaded.conversations)
            held_out = agent_settings.evaluation.episodes(len(environments.eval_tasks))
            agent = build_agent(agent_settings, model, environments, max(max_episodes, held_out))
        yield OpenJob(run, model, agent, loaded.data)
