"""Config, components and training loop of jobs on recorded data (`sft`, `dpo`, `agentevol`)."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import jax
import optax

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.config.agent import AgentSettings, parse_agent
from agentgym_jax.config.model import Model
from agentgym_jax.config.sections import (
    AGENT_SECTIONS,
    ALL_AGENT_SECTIONS,
    JOB_SECTIONS,
    ConfigError,
    parse_section,
)
from agentgym_jax.config.settings import RecordedDataSettings, SupervisedTopLevel, check_top
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.jobs.after_step import Metrics, finish_step, log_step, save_or_stop
from agentgym_jax.jobs.job import AnyParts, JobSettings, parse_job
from agentgym_jax.jobs.run import LoopState, Run, StopRequested
from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import get_learning_rate
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.telemetry import guards

Learning = TypeVar("Learning", bound=RecordedDataSettings)
LearningOf = TypeVar("LearningOf", bound=RecordedDataSettings, covariant=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedSettings(JobSettings, Generic[LearningOf]):
    """Checked config of a job on recorded data.

    Attributes:
      learning: Section with the data and the optimiser, such as `sft`.
      agent: Sections of the evaluated agent; None for a job without evaluation.
    """

    learning: LearningOf
    agent: AgentSettings | None


def parse_without_agent(
    config: Mapping[str, Any], kind: type[Learning], *sections: str
) -> SupervisedSettings[Learning]:
    """Parses a plain config except for the sections of the agent and `sections`."""
    known = (*JOB_SECTIONS, *ALL_AGENT_SECTIONS, kind.section, *sections)
    check_top(config, known, SupervisedTopLevel)
    settings = parse_job(config, config["logprob_chunk"], title=config["job"])
    learning = parse_section(config, kind.section, kind)
    if not learning.steps:
        raise ConfigError(f"config.{kind.section}.steps=0 leaves nothing to train: raise it")
    return SupervisedSettings(**vars(settings), learning=learning, agent=None)


def parse(config: Mapping[str, Any], kind: type[Learning]) -> SupervisedSettings[Learning]:
    """Parses and checks a plain config with all or none of the sections of an agent."""
    settings = parse_without_agent(config, kind)
    steps, total_steps = settings.learning.steps, config["total_steps"]
    if steps != total_steps:
        raise ConfigError(
            f"config.{kind.section}.steps={steps} and config.total_steps={total_steps} must be the "
            f"same number in job {kind.section!r}"
        )
    if not any(name in config for name in AGENT_SECTIONS):
        return settings
    return dataclasses.replace(settings, agent=parse_agent(config))


def fit(
    run: Run,
    parts: AnyParts,
    optimizer: optax.GradientTransformation,
    take_step: Callable[[TrainState, int, float], tuple[TrainState, Metrics]],
    before_step: Callable[[LoopState], LoopState] = lambda now: now,
) -> None:
    """Trains until `run.total_steps` steps are done; a resumed run starts at its newest checkpoint.

    `take_step` maps (state, number of steps done, maximum gradient norm of an applied update) to the
    next state and metrics. `before_step` returns the loop state with which a step starts.

    Raises:
      StopRequested: The user requested a stop.
      ServerUnavailable: An environment was unavailable for too long.
      GuardStop: A guard ends the run. After each of these errors the newest complete step is saved;
        its metrics are saved too if its evaluation is not done yet.
    """
    model, options = parts.model, parts.settings.guards
    now = run.restore(train_state.abstract_state(model.trained, optimizer, model.layout))
    if now is None:
        now = LoopState(0, initial_state(model, optimizer))
    try:
        now = log_step(run, parts, now)
        while now.step < run.total_steps:
            now = before_step(now)
            if parts.agent is not None:
                parts.agent.sampler.release()  # evaluations and explorations bring new weights
            run.begin("update")
            limit = guards.grad_norm_limit(options, now.history)
            state, metrics = take_step(now.state, now.step, limit)
            findings = guards.check_update(options, now.history, metrics)
            now = finish_step(run, parts, now, state, metrics, findings)
            now = log_step(run, parts, now)
            save_or_stop(run, now)
    except (StopRequested, ServerUnavailable):
        run.save(now)
        raise


def step_metrics(
    computed: Mapping[str, Any],
    tokens: TokenBatch,
    settings: RecordedDataSettings,
    step: int,
    *,
    started: float,
    packed: float,
) -> Metrics:
    """Returns the metrics that all jobs on recorded data log, at the end of an optimiser step.

    `computed` are the metrics that the compiled update returned. The step `started` and its batch
    was `packed` at these clock times, in seconds.
    """
    ended = time.perf_counter()
    num_tokens = float((tokens.segment_ids > 0).sum())
    rate = get_learning_rate(settings.optimizer, step, total_steps=settings.steps)
    return {
        **{f"policy/{k}": float(computed[k]) for k in ("grad_norm", "skipped", "nonfinite")},
        "policy/grad_norm_max": float(computed["grad_norm"]),
        "policy/learning_rate": rate,
        "batch/tokens": num_tokens,
        "rate/train_tokens_per_s": num_tokens / (ended - packed),
        "time/data_s": packed - started,
        "time/update_s": ended - packed,
        "time/iteration_s": ended - started,
    }


def initial_state(model: Model, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the first state, sharded like a restored one, so that both use the same programs."""
    params = model.initial_params()
    state = train_state.create(model.trained, optimizer, params, model.layout)
    return state if model.layout is not None else jax.device_put(state, jax.local_devices()[0])
