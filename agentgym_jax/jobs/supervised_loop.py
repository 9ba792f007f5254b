"""Config, components and training loop of jobs on recorded data (`sft`, `dpo`, `agentevol`)."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import jax
import optax

from agentgym_jax.batch import TokenBatch
from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.jobs import job
from agentgym_jax.jobs.agents import SampledAgent, check_held_out
from agentgym_jax.jobs.config import agent
from agentgym_jax.jobs.config.agent import AgentSettings, parse_agent
from agentgym_jax.jobs.config.model import Model
from agentgym_jax.jobs.config.sections import ConfigError, call, section
from agentgym_jax.jobs.config.settings import RecordedDataSettings, Tokens, check_top
from agentgym_jax.jobs.conversations import check_demonstrations
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.jobs.evaluation_step import evaluate_step
from agentgym_jax.jobs.job import JobSettings, Loaded, parse_job
from agentgym_jax.jobs.run import Run, StopFlag, StopRequested
from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import GuardStop, History

Metrics = dict[str, float]
TakeStep = Callable[[TrainState, int, float], tuple[TrainState, Metrics]]
BeginFit = Callable[[TrainState | None, int], None]

S = TypeVar("S", bound=RecordedDataSettings)
D = TypeVar("D")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedSettings(JobSettings, Generic[S]):
    """Checked config; nothing has been started, loaded or compiled yet.

    Attributes:
      learning: Section with the data and the optimiser, such as `sft`.
      agent: Sections of the evaluated agent; None for a job without evaluation.
    """

    learning: S
    agent: AgentSettings | None


@dataclasses.dataclass(frozen=True)
class SupervisedParts(Generic[S, D]):
    """All components of a job.

    Attributes:
      settings: Checked config.
      model: Policy, tokenizer and renderer.
      data: Training data.
      agent: Agent for the held-out tasks; None for a job without evaluation.
    """

    settings: SupervisedSettings[S]
    model: Model
    data: D
    agent: SampledAgent | None

    def is_evaluation_due(self, step: int, total_steps: int) -> bool:
        """Returns True if the policy must be evaluated after `step` steps."""
        settings = self.settings.agent
        return settings is not None and settings.evaluation.is_due(step, total_steps)


def parse_top(config: Mapping[str, Any], *sections: str) -> JobSettings:
    """Parses and checks the keys outside sections, and the sections of every training job.

    Args:
      config: Plain config.
      sections: Names of the sections that only this job has.
    """
    known = (*job.SECTIONS, *sections, *agent.SECTIONS)
    check_top(config, known, logprob_chunk=Tokens)
    return parse_job(config, config["logprob_chunk"])


def parse_learning(config: Mapping[str, Any], name: str, kind: Callable[..., S]) -> S:
    """Parses the section with data and optimiser, and checks its values.

    Args:
      config: Plain config.
      name: Name of the section.
      kind: Class of the section.
    """
    learning = call(kind, name, section(config, name))
    check_demonstrations(learning, name)
    call(make_optimizer, f"{name}.optimizer", learning.optimizer, total_steps=learning.steps)
    return learning


def parse(config: Mapping[str, Any], name: str, kind: Callable[..., S]) -> SupervisedSettings[S]:
    """Parses a plain config and checks all its sections.

    Args:
      config: Plain config with the section of the job, and with all or none of `agent.SECTIONS`.
      name: Name of both the job and its section.
      kind: Class of the section `name`.

    Raises:
      ConfigError: A key is unknown, missing or invalid; the message names it.
    """
    settings, learning = parse_top(config, name), parse_learning(config, name, kind)
    if learning.steps != config["total_steps"]:
        raise ConfigError(
            f"config.{name}.steps={learning.steps} and config.total_steps={config['total_steps']} "
            f"must be the same number in job {name!r}"
        )
    has_agent = any(part in config for part in agent.SECTIONS)
    return SupervisedSettings(
        **vars(settings), learning=learning, agent=parse_agent(config) if has_agent else None
    )


@contextlib.contextmanager
def open_job(
    config: Mapping[str, Any],
    workdir: str,
    stop: StopFlag,
    settings: SupervisedSettings[S],
    load: Callable[[Run, Environments | None], Loaded[D]],
    **options: Any,
) -> Iterator[tuple[Run, SupervisedParts[S, D]]]:
    """Opens a job; leaving the context closes servers, threads and files.

    Args:
      config: Plain config from which `settings` was parsed.
      workdir: Run folder.
      stop: Flag that a request to stop sets.
      settings: Checked config.
      load: Function that loads the data, given the run and the environments.
      options: Further arguments of `job.open_job`.
    """

    def load_checked(run: Run, environments: Environments | None) -> Loaded[D]:
        loaded = load(run, environments)
        if environments is not None:
            check_held_out(environments, loaded.conversations)
        return loaded

    options = {"title": config["job"]} | options
    opening = functools.partial(job.open_job, config, workdir, stop, settings, settings.agent)
    with opening(load_checked, **options) as opened:
        opened.run.folder.begin()
        yield opened.run, SupervisedParts(settings, opened.model, opened.data, opened.agent)


def fit(
    run: Run,
    parts: SupervisedParts,
    optimizer: optax.GradientTransformation,
    take_step: TakeStep,
    *,
    fit_steps: int = 0,
    begin_fit: BeginFit = lambda explorer, number: None,
) -> None:
    """Trains until `run.total_steps` steps are done; a resumed run starts at its newest checkpoint.

    Args:
      run: Run whose folder keeps the state.
      parts: Components of the job.
      optimizer: Optimiser whose state is saved.
      take_step: Function that takes one optimiser step. Arguments: state, number of steps done, and
        maximum gradient norm of an applied update. Returns the next state and metrics.
      fit_steps: Number of steps per fit; every fit starts from the initial weights. With 0 there is
          only one fit.
      begin_fit: Function called at the start of every fit with the final state of the previous fit,
        and after a resume within a fit with None. The second argument is the number of the fit.

    Raises:
      StopRequested: The user requested a stop.
      ServerUnavailable: An environment was unavailable for too long.
      GuardStop: A guard ends the run. After each of these errors the newest complete step is saved;
        its metrics are saved too if its evaluation is not done yet.
    """
    model, guarding = parts.model, parts.settings.guards
    fit_steps = fit_steps or run.total_steps
    state, step, unlogged = _restore_or_create(run, parts, optimizer)
    if run.writer.last_step == step:
        unlogged = None  # a line with this step was already written after the checkpoint
    history = History.from_json(run.restored_guards)
    is_ready = False
    try:
        if unlogged is not None:
            run.log_step(step, unlogged | _evaluate(run, parts, state, step))
            unlogged = None
        while step < run.total_steps:
            if run.should_stop():
                raise StopRequested(f"stopped after step {step}")
            fit_number, done = divmod(step, fit_steps)
            if not is_ready or not done:
                begin_fit(None if done else state, fit_number)
                is_ready = True
            if step and not done:
                del state  # frees the old weights before the new ones are created
                state = initial_state(model, optimizer, run.seed)
                history = History()  # gradient norms of different fits cannot be compared
            run.begin("update")
            state, metrics = take_step(state, step, guards.grad_norm_limit(guarding, history))
            step += 1
            found = guards.check_update(guarding, history, metrics)
            run.warn(step, guards.new_findings(found, history))
            history = guards.update_history(guarding, history, metrics, found)
            metrics, stop = metrics | guards.guard_metrics(found), guards.stop_reason(found)
            if parts.is_evaluation_due(step, run.total_steps):
                unlogged = metrics
                metrics = metrics | _evaluate(run, parts, state, step)
                unlogged = None
            run.log_step(step, metrics)
            if run.is_save_due(step) or step % fit_steps == 0 or stop is not None:
                run.save(step, state, guards=history.to_json())
            if stop is not None:
                raise GuardStop(f"stopped after step {step}, which is saved: {stop}")
    except (StopRequested, ServerUnavailable):
        run.save(step, state, unlogged, guards=history.to_json())
        raise


def _restore_or_create(
    run: Run, parts: SupervisedParts, optimizer: optax.GradientTransformation
) -> tuple[TrainState, int, Metrics | None]:
    """Returns the state, the number of steps done, and metrics not yet written."""
    model = parts.model
    restored = run.restore(train_state.abstract_state(model.policy, optimizer, model.layout))
    if restored is not None:
        return restored
    is_due = parts.is_evaluation_due(0, run.total_steps)
    return initial_state(model, optimizer, run.seed), 0, {} if is_due else None


def step_metrics(
    times: tuple[float, float, float],
    device_metrics: Mapping[str, Any],
    batch: TokenBatch,
    learning_rate: float,
) -> Metrics:
    """Returns the metrics that every supervised step logs.

    Args:
      times: Clock times in seconds: at the start, when the batch was packed, and at the end.
      device_metrics: Metrics that the optimiser step computed.
      batch: Packed tokens.
      learning_rate: Learning rate of the step.
    """
    started, packed, ended = times
    tokens = float((batch.segment_ids > 0).sum())
    return {
        "policy/grad_norm": float(device_metrics["grad_norm"]),
        "policy/grad_norm_max": float(device_metrics["grad_norm"]),
        "policy/skipped": float(device_metrics["skipped"]),
        "policy/nonfinite": float(device_metrics["nonfinite"]),
        "policy/learning_rate": learning_rate,
        "batch/tokens": tokens,
        "rate/train_tokens_per_s": tokens / (ended - packed),
        "time/data_s": packed - started,
        "time/update_s": ended - packed,
        "time/iteration_s": ended - started,
    }


def initial_state(model: Model, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """Returns the state before the first step, with the sharding of a restored state.

    The same sharding lets new and resumed runs execute the same compiled programs.
    """
    params = model.initial_params(seed)
    state = train_state.create(model.policy, optimizer, params, model.layout)
    return state if model.layout is not None else jax.device_put(state, jax.local_devices()[0])


def _evaluate(run: Run, parts: SupervisedParts, state: TrainState, step: int) -> Metrics:
    settings = parts.settings.agent
    if parts.agent is None or settings is None or not parts.agent.environments.eval_tasks:
        return {}
    parts.agent.set_params(state.params, version=step)
    return evaluate_step(run, parts.agent, settings, step)
