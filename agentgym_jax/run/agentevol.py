"""The parts of an AgentEvol job."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.tasks import MixtureSchedule, Task
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.rewarded import MEASURES, WEIGHTINGS, Rule
from agentgym_jax.limits import OneOf
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run import mixture, playing
from agentgym_jax.run.environments import Environments
from agentgym_jax.run.model import (
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    build_tokenizer,
    resolve_source,
)
from agentgym_jax.run.playing import Players, PlayingSettings
from agentgym_jax.run.run import Run, StopFlag, open_run
from agentgym_jax.run.sections import ConfigError, call, check, section
from agentgym_jax.run.settings import (
    CheckpointSettings,
    Count,
    CountOrNone,
    GuardSettings,
    SftSettings,
    Tokens,
    Turns,
    check_top,
)
from agentgym_jax.sharding import make_mesh

_OWN = "model tokenizer mesh checkpoint guards sft agentevol".split()
_SECTIONS = (*_OWN, *playing.SECTIONS)


def _explored(max_turns: Turns, measure: Annotated[str, OneOf(MEASURES)], threshold: float) -> None:
    """Keys of an entry of `agentevol.explore`."""


@dataclasses.dataclass(frozen=True)
class AgentEvolSettings:
    """Section `agentevol`: rounds of exploring, filtering and fitting.

    Attributes:
      rounds: Explorations; the policy is fitted once before the first, and after each of them.
      tasks_per_round: Training tasks of an exploration; 0 plays all of them.
      samples: Episodes per task.
      tasks_per_file: Tasks between two files of episodes, which a killed run may play again.
      explore: Environment -> `max_turns` of an episode, `measure` and `threshold` of those kept.
      keep_per_task: Largest number of episodes kept per task, the best first; 0 keeps all.
      weighting: Weight of a kept episode: `equal`, `reward` or `importance` (learner/rewarded.py).
    """

    rounds: Count
    tasks_per_round: CountOrNone
    samples: Count
    tasks_per_file: Count
    explore: Mapping[str, Mapping[str, Any]]
    keep_per_task: CountOrNone
    weighting: Annotated[str, OneOf(WEIGHTINGS)]

    def __post_init__(self) -> None:
        for name, entry in self.explore.items():
            check(_explored, f"agentevol.explore.{name}", entry)

    @property
    def rules(self) -> dict[str, Rule]:
        """What is kept, by environment."""
        return {n: Rule(e["measure"], e["threshold"]) for n, e in self.explore.items()}

    @property
    def max_turns(self) -> dict[str, int]:
        """Turns of an explored episode, by environment."""
        return {name: entry["max_turns"] for name, entry in self.explore.items()}


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """A checked config of job `agentevol`; nothing is started, loaded or compiled yet."""

    model: ModelSettings
    tokenizer: TokenizerSettings
    mesh: Mapping[str, Any]
    playing: PlayingSettings
    checkpoint: CheckpointSettings
    guards: GuardSettings
    sft: SftSettings
    agentevol: AgentEvolSettings
    logprob_chunk: int


@dataclasses.dataclass(frozen=True)
class AgentEvolParts:
    """Everything that an AgentEvol job computes with.

    Attributes:
      settings: the checked config.
      model: policies, tokenizer, renderer.
      players: play the tasks to explore and those held out.
      schedule: training tasks in a fixed order.
      demonstrations: the original conversations.
    """

    settings: JobSettings
    model: Model
    players: Players
    schedule: MixtureSchedule
    demonstrations: tuple[Conversation, ...]

    def tasks_of_round(self, number: int) -> list[Task]:
        """Tasks of an exploration; they count from 1."""
        count = self.settings.agentevol.tasks_per_round
        if not count:
            weights = {n: e.weight for n, e in self.settings.playing.environments.items()}
            tasks = self.players.environments.train_tasks
            return [task for task in tasks if weights[task.environment]]
        return self.schedule.at(number - 1, count)


def parse(config: Mapping[str, Any]) -> JobSettings:
    """Checks every section of a plain config.

    Raises:
      ConfigError: a key is unknown, missing or impossible; the message names it.
    """
    check_top(config, _SECTIONS, logprob_chunk=Tokens)
    part = functools.partial(section, config)
    check(make_mesh, "mesh", part("mesh"), devices=None)
    settings = JobSettings(
        model=call(ModelSettings, "model", part("model")),
        tokenizer=call(TokenizerSettings, "tokenizer", part("tokenizer")),
        mesh=part("mesh"),
        playing=playing.parse(config, every=0, at_start=False),  # evaluates at the end of a fit
        checkpoint=call(CheckpointSettings, "checkpoint", part("checkpoint")),
        guards=call(GuardSettings, "guards", part("guards")),
        sft=call(SftSettings, "sft", part("sft")),
        agentevol=call(AgentEvolSettings, "agentevol", part("agentevol")),
        logprob_chunk=config["logprob_chunk"],
    )
    mixture.check_trained(settings.playing.environments)
    supervised.check_demonstrations(settings.sft)
    call(make_optimizer, "sft.optimizer", settings.sft.optimizer, total_steps=settings.sft.steps)
    _check(settings, config["total_steps"])
    return settings


def _check(s: JobSettings, total_steps: int) -> None:
    """What no section can know alone."""
    steps = (s.agentevol.rounds + 1) * s.sft.steps
    if total_steps != steps:
        raise ConfigError(
            f"config.total_steps={total_steps} must be {steps}: config.sft.steps={s.sft.steps} for "
            f"the demonstrations and again after each of {s.agentevol.rounds} rounds"
        )
    trained = {name for name, entry in s.playing.environments.items() if entry.weight}
    if trained != set(s.agentevol.explore):
        raise ConfigError(
            f"config.agentevol.explore names {sorted(s.agentevol.explore)}, but the environments "
            f"to train on are {sorted(trained)}"
        )
    sampling = s.playing.sampling
    if sampling.max_tokens > s.sft.row_length:
        raise ConfigError(
            f"config.sampling.max_tokens={sampling.max_tokens} exceeds "
            f"config.sft.row_length={s.sft.row_length}: an explored episode must fit"
        )
    if sampling.temperature <= 0:
        raise ConfigError("config.sampling.temperature must be positive: exploring is sampling")


@contextlib.contextmanager
def open_agentevol(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, AgentEvolParts]]:
    """Builds a job from a plain config; closes servers, threads and files at the end."""
    settings = parse(config)
    source = resolve_source(settings.model)
    layouts = build_layouts(settings.mesh)
    names = ", ".join(settings.playing.environments)
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            open_run(
                config,
                workdir,
                checkpoint_settings=settings.checkpoint,
                total_steps=config["total_steps"],
                title=f"agentevol on {names}",
                facts={"model": settings.model.source, "environments": names},
                stop=stop,
            )
        )
        run.console.phase("starting environments", 0, 1)
        environments = playing.open_playing(stack, settings.playing, run.folder)
        run.watch(environments)
        parts = _build(settings, source, layouts, environments, run)
        run.folder.begin()
        yield run, parts


def _build(
    settings: JobSettings, source, layouts, environments: Environments, run: Run
) -> AgentEvolParts:
    run.console.phase("loading demonstrations", 0, 1)
    demonstrations = supervised.load_conversations(
        settings.sft, run.folder, {n: c.tasks for n, c in environments.clients.items()}
    )
    playing.check_held_out(environments, demonstrations)
    texts = supervised.texts(demonstrations)
    run.console.phase("preparing the tokenizer", 0, 1)
    tokenizer = build_tokenizer(settings.tokenizer, source, run.folder, texts)
    model = build_model(settings.model, source, tokenizer, layouts, run.folder)
    run.show_size(model.policy.config.num_parameters)
    explored = settings.agentevol.tasks_per_file * settings.agentevol.samples
    environments = playing.with_openings(environments, settings.playing, demonstrations)
    return AgentEvolParts(
        settings=settings,
        model=model,
        players=playing.build_players(settings.playing, model, environments, explored),
        schedule=mixture.schedule(
            settings.playing.environments, environments.train_tasks, seed=run.seed
        ),
        demonstrations=tuple(demonstrations),
    )
