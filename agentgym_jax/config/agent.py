"""Sections of an agent in environments: servers, sampler, episodes and evaluation."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from agentgym_jax.config.environment_sections import (
    EnvironmentSettings,
    TransportSettings,
    check_playable,
    parse_settings,
)
from agentgym_jax.config.sections import ConfigError, check, config_errors, parse_section, section
from agentgym_jax.config.settings import (
    CollectorSettings,
    EvaluationSettings,
    JudgeSettings,
    ProgramSettings,
    RolloutSettings,
)
from agentgym_jax.learner.experience import JUDGE
from agentgym_jax.programs.runners import load_function
from agentgym_jax.sampling import drafts
from agentgym_jax.sampling.options import LOWEST_TEMPERATURE, SamplingOptions, check_buckets
from agentgym_jax.sampling.sampler import Sampler


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Checked sections of an agent in environments; no server has been started yet.

    Attributes:
      program: Section `program`; None if the policy itself plays the episodes.
      judge: Section `judge`; None if the rewards are those of the environments.
    """

    env_server: TransportSettings
    environments: Mapping[str, EnvironmentSettings]
    client: Mapping[str, Any]
    pool: Mapping[str, Any]
    sampler: Mapping[str, Any]
    sampling: SamplingOptions
    rollout: CollectorSettings
    evaluation: EvaluationSettings
    program: ProgramSettings | None
    judge: JudgeSettings | None

    @property
    def evaluation_turns(self) -> dict[str, int]:
        """Returns the turn limit of held-out episodes, by environment."""
        default = self.evaluation.max_turns
        return {n: entry.eval_max_turns or default for n, entry in self.environments.items()}


def parse_agent(
    config: Mapping[str, Any],
    rollout: type[CollectorSettings] = CollectorSettings,
    **evaluation: Any,
) -> AgentSettings:
    """Parses and checks `AGENT_SECTIONS`; `evaluation` are values that the config does not have."""
    settings = AgentSettings(
        env_server=parse_section(config, "env_server", TransportSettings),
        environments=parse_settings(section(config, "environments")),
        client=section(config, "client"),
        pool=section(config, "pool"),
        sampler=section(config, "sampler"),
        sampling=parse_section(config, "sampling", SamplingOptions),
        rollout=parse_section(config, "rollout", rollout),
        evaluation=parse_section(config, "evaluation", EvaluationSettings, **evaluation),
        program=parse_section(config, "program", ProgramSettings) if "program" in config else None,
        judge=parse_section(config, "judge", JudgeSettings) if "judge" in config else None,
    )
    _check_program(settings)
    _check_judge(settings)
    _check_sampler(settings.sampler, settings.sampling)
    check_playable(
        settings.environments, settings.client, settings.pool, settings.rollout.system_prompt_mode
    )
    return settings


def check_drafts(settings: AgentSettings, *, is_hybrid: bool) -> None:
    """Refuses drafts for a model with gated delta nets, before the run folder is changed."""
    options = settings.sampler
    if is_hybrid and "draft_tokens" in options and options["draft_tokens"]:
        raise ConfigError(f"config.{drafts.no_rollback(options['draft_tokens'])}")


def _check_program(settings: AgentSettings) -> None:
    """Checks that the function exists, and that no option has an effect on the policy alone."""
    if settings.program is None:
        for name, entry in settings.environments.items():
            if entry.protocol == "none":
                raise ConfigError(
                    f"config.environments.{name}.protocol='none' needs an agent program with its "
                    "own tasks; add the section program, or remove protocol"
                )
        return
    if settings.program.function:
        with config_errors("config.program.function="):
            function = load_function(settings.program.function)
        _check_options(function, settings.program)
    if settings.rollout.show_turn_budget != "none":
        raise ConfigError(
            f"config.rollout.show_turn_budget={settings.rollout.show_turn_budget!r} has no effect "
            "on an agent program, which writes its own messages; set 'none'"
        )


def _check_options(function: Any, program: ProgramSettings) -> None:
    """Checks the arguments of the function of a program, as far as it declares them."""
    # An object that is called has its annotations on the method.
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    called = function if is_plain else function.__call__
    try:
        parameters = inspect.signature(called).parameters
        check(called, "program.options", program.options, **dict.fromkeys([*parameters][:1]))
    except ConfigError:
        raise
    except (NameError, TypeError, ValueError) as error:  # no signature, or unknown types
        if program.options:
            raise ConfigError(
                f"config.program.options cannot be checked: the arguments of {program.function} "
                f"are unknown ({error}); annotate them with types that exist at run time"
            ) from error


def _check_judge(settings: AgentSettings) -> None:
    """Checks that there is a judge exactly if its score is the reward."""
    reward = settings.rollout.reward if isinstance(settings.rollout, RolloutSettings) else None
    if settings.judge is None and reward == JUDGE:
        raise ConfigError(
            "config.rollout.reward='judge' needs the section config.judge with url, model and rubric"
        )
    if settings.judge is not None and reward != JUDGE:
        raise ConfigError(
            "config.judge has no effect: remove it"
            + (
                ""
                if reward is None
                else f", or set config.rollout.reward={JUDGE!r}, not {reward!r}"
            )
        )


def check_training_samples(sampling: SamplingOptions, section: str, row_length: int) -> None:
    """Checks that sampled episodes are random and fit the rows of `section`."""
    if sampling.max_tokens > row_length:
        raise ConfigError(
            f"config.sampling.max_tokens={sampling.max_tokens} exceeds "
            f"config.{section}.row_length={row_length}: an episode must fit"
        )
    if sampling.temperature < LOWEST_TEMPERATURE:
        raise ConfigError(
            f"config.sampling.temperature must be positive, at least {LOWEST_TEMPERATURE}: training "
            "needs samples"
        )


def _check_sampler(options: Mapping[str, Any], sampling: SamplingOptions) -> None:
    """Checks the section `sampler`, and that the longest episode fits the sampler's caches."""
    check(Sampler, "sampler", options, policy=None, stop_ids=(), truncates=False)
    if options["buckets"]:
        with config_errors("config."):
            check_buckets(options["buckets"], options["cache_length"])
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
