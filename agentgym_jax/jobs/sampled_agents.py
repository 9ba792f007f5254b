"""Sampled agents: a policy decodes in the rows of a sampler, and a collector runs the episodes."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence

from absl import logging

from agentgym_jax.client.chat_endpoint import ChatEndpoint
from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.config.model import Model
from agentgym_jax.config.sections import ConfigError, call
from agentgym_jax.config.settings import AS_DATA, JudgeSettings, ProgramSettings
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import common_prompts
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.jobs.environments import Environments, check_disjoint
from agentgym_jax.judge.cache import VerdictCache
from agentgym_jax.judge.judge import Judge
from agentgym_jax.judge.rubric import Rubric
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.sharding import rewrap
from agentgym_jax.models.policy import Params
from agentgym_jax.programs.gateway import Gateway
from agentgym_jax.programs.program_collector import ProgramCollector
from agentgym_jax.programs.runners import CommandProgram, FunctionProgram, Start, load_function
from agentgym_jax.rollout.agents import SampledRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.rollout.scheduler import EpisodeCollector
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.engine import Engine
from agentgym_jax.text.tool_chat import ToolChat
from agentgym_jax.text.tool_renderer import ToolRenderer

_CONNECT_S = 10.0  # limit for a connection to a judge
_MAX_WAITING = 16  # waiting requests per row of the sampler, beyond which programs are refused


@dataclasses.dataclass(frozen=True)
class SampledAgent:
    """A policy that acts in environments.

    Attributes:
      sampler: Sampler with decode rows; it has no weights before `set_params` is called.
      collector: Collector of episodes whose rewards are those of the environments.
      judge: Judge that scores the episodes of training; None without one.
    """

    model: Model
    environments: Environments
    sampler: Sampler
    collector: EpisodeCollector
    judge: Judge | None = None

    def set_params(self, params: Params, *, version: int) -> None:
        """Gives the sampler the learner's weights after `version` steps, without a host copy.

        The old weights are freed first, so that the devices never hold two copies.
        """
        self.sampler.release()
        self.set_spread_params(self.model.spread(params), version=version)

    def set_spread_params(self, params: Params, *, version: int) -> None:
        """Gives the sampler weights with the type and shardings of `spread_params`."""
        self.sampler.set_params(self.model.for_sampler(params), version=version)

    def set_stale_params(self, params: Params, *, version: int) -> None:
        """Gives the sampler weights that a checkpoint has saved; with adapters, only these."""
        set_params = self.set_spread_params if self.model.adapters is None else self.set_params
        set_params(params, version=version)

    @property
    def spread_params(self) -> Params:
        """Weights of the samplers of all processes, as arrays on all devices."""
        shardings, params = self.model.spread_shardings, self.sampler.params
        assert params is not None, "the sampler has weights"
        return params if shardings is None else rewrap(params, shardings)


def match_prompts(
    environments: Environments, settings: AgentSettings, conversations: Sequence[Conversation]
) -> Environments:
    """Returns the environments with the prompts of the training conversations in mode `data`.

    Other values of `rollout.system_prompt_mode` leave the environments unchanged. An environment
    without training conversations keeps its instructions.
    """
    if settings.rollout.system_prompt_mode != AS_DATA:
        return environments
    found = common_prompts(conversations)
    for name in sorted(set(environments.texts) - set(found)):
        logging.warning("no conversation on %s: its episodes open with its instructions", name)
    texts = {
        name: dataclasses.replace(text, preamble=found[name]) if name in found else text
        for name, text in environments.texts.items()
    }
    return dataclasses.replace(environments, texts=texts)


def training_preambles(
    environments: Environments, settings: AgentSettings
) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Returns the messages that conversations lack to start like an episode, by environment."""
    if settings.rollout.system_prompt_mode == AS_DATA:
        return {}
    return {name: text.preamble for name, text in environments.texts.items()}


def check_held_out(
    environments: Environments | None, conversations: Sequence[Conversation]
) -> None:
    """Raises ConfigError if a held-out task also occurs in the training conversations."""
    tasks = () if environments is None else environments.eval_tasks
    item_ids = (canonical_item_id(conversation.item_id) for conversation in conversations)
    check_disjoint(tasks, item_ids, "the data to learn from")


def count_process_rows(rows: int, max_episodes: int, shards: int, num_processes: int) -> int:
    """Returns the number of rows of each process's sampler."""
    step = num_processes * shards
    if rows % step:
        raise ConfigError(
            f"config.sampler.rows={rows} cannot be divided over {num_processes} processes with "
            f"{shards} groups of devices each; set {-(-rows // step) * step}"
        )
    useful_rows = -(-max(1, max_episodes) // shards) * shards
    return min(rows // num_processes, useful_rows)


def build_judge(settings: JudgeSettings, folder: pathlib.Path) -> Judge:
    """Builds the judge of a run, with the verdicts that are in the run folder.

    Raises:
      ConfigError: The environment variable of the key is not set.
    """
    key = os.environ.get(settings.key_variable, "")
    if settings.key_variable and not key:
        raise ConfigError(
            f"config.judge.key_variable={settings.key_variable!r}: this environment variable is not "
            "set. Set it to the key, or key_variable to '' for an endpoint without a key"
        )
    endpoint = ChatEndpoint(
        settings.url,
        key=key,
        key_variable=settings.key_variable,
        connect_timeout_s=_CONNECT_S,
        timeout_s=settings.timeout_s,
        connections=settings.workers,
    )
    return Judge(
        endpoint=endpoint,
        rubric=Rubric(settings.model, settings.rubric, settings.max_score),
        cache=VerdictCache(folder, processes.index()),
        attempts=settings.attempts,
        workers=settings.workers,
        token_prices=(
            settings.price_per_million_prompt_tokens / 1e6,
            settings.price_per_million_completion_tokens / 1e6,
        ),
    )


def build_agent(
    settings: AgentSettings,
    model: Model,
    environments: Environments,
    max_episodes: int,
    judge: Judge | None = None,
) -> SampledAgent:
    """Builds the collector and its sampler without weights; `max_episodes` limits the rows."""
    layout = model.decode_policy.layout
    shards = layout.shards("batch") if layout is not None else 1
    rows = count_process_rows(settings.sampler["rows"], max_episodes, shards, processes.count())
    options = {**settings.sampler, "rows": rows}
    texts = {
        name: with_tool_renderer(name, text, model) for name, text in environments.texts.items()
    }
    environments = dataclasses.replace(environments, texts=texts)
    stop_ids = model.renderer.stop_ids
    sampler = call(
        Sampler,
        "sampler",
        options,
        policy=model.decode_policy,
        stop_ids=stop_ids,
        truncates=settings.sampling.is_truncated,  # also of agent programs: the config decides
    )
    if settings.program is not None:
        programs = _collect_programs(settings, settings.program, model, environments, sampler)
        return SampledAgent(model, environments, sampler, programs, judge)
    collector = Collector(
        rows=SampledRows(sampler, model.renderer, model.tokenizer.decode),
        pool=environments.pool,
        environments=texts,
        prefetch=settings.rollout.prefetch,
        max_attempts=settings.rollout.max_attempts,
        max_replacements=settings.rollout.max_replacements,
        show_turn_budget=settings.rollout.show_turn_budget,
        restart_dead_servers=environments.restart_dead_servers,
    )
    return SampledAgent(model, environments, sampler, collector, judge)


def with_tool_renderer(name: str, text: EnvironmentText, model: Model) -> EnvironmentText:
    """Returns the texts of an environment; with tools, they get a renderer of the chat template.

    Raises:
      ConfigError: The chat template cannot write the tools.
    """
    if not text.tools:
        return text
    try:
        chat = ToolChat(model.renderer, model.tokenizer)
        renderer = ToolRenderer(chat, model.renderer, text.tools)
        renderer.check(text.preamble)
    except ValueError as error:
        raise ConfigError(
            f"config.environments.{name} has tools, and the chat template of the model cannot be "
            f"used with them: {error}. Set config.environments.{name}.action_format='raw' to "
            "describe them in the system prompt, or choose another model"
        ) from error
    parse = functools.partial(text.parse, tool_form=renderer.form)
    return dataclasses.replace(text, parse=parse, renderer=renderer)


def _collect_programs(
    settings: AgentSettings,
    program: ProgramSettings,
    model: Model,
    environments: Environments,
    sampler: Sampler,
) -> ProgramCollector:
    """Returns the collector of an agent program; one program runs per row of the sampler."""
    engine = Engine(
        sampler,
        model.tokenizer.decode,
        max_waiting=_MAX_WAITING * sampler.rows,
        grammars=model.grammars,
    )
    encoder = ToolChat(
        model.renderer,
        model.tokenizer,
        tool_parser=program.tool_parser,
        reasoning_parser=program.reasoning_parser,
    )
    start: Start
    if program.function:
        play = functools.partial(load_function(program.function), **program.options)
        start = functools.partial(FunctionProgram, play)
    else:
        start = functools.partial(CommandProgram, program.command, variables=program.variables)
    return ProgramCollector(
        engine=engine,
        gateway=Gateway(engine, model.tokenizer, answer_form=AnswerForm.of(encoder)),
        encoder=encoder,
        pool=environments.pool,
        environments=environments.texts,
        start=start,
        concurrency=sampler.rows,
        timeout_s=program.timeout_s,
        max_attempts=settings.rollout.max_attempts,
        max_replacements=settings.rollout.max_replacements,
        restart_dead_servers=environments.restart_dead_servers,
    )
