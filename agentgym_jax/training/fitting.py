"""Optimiser steps on recorded data, with evaluations in between; only the order of things."""

from collections.abc import Callable

import jax
import optax

from agentgym_jax.env_client.errors import ServerUnavailable
from agentgym_jax.learner import train_state
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.run.model import Model
from agentgym_jax.run.playing import Players
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.run.settings import GuardSettings
from agentgym_jax.training import guards, held_out
from agentgym_jax.training.guards import GuardStop, History

Metrics = dict[str, float]
Step = Callable[[TrainState, int, float], tuple[TrainState, Metrics]]


def fit(
    run: Run,
    model: Model,
    optimizer: optax.GradientTransformation,
    take_step: Step,
    players: Players | None,
    guarding: GuardSettings,
) -> None:
    """Trains until `run.total_steps`, from wherever the run folder stands.

    Args:
      run: whose folder keeps the state.
      model: whose weights the run begins with.
      optimizer: of the steps.
      take_step: the state, how many steps are done, and the gradient norm above which an update is
        withheld -> the next state and its metrics.
      players: evaluate when config.evaluation says; None never does.
      guarding: section guards.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable: an environment failed all calls for long.
      GuardStop: a guard ends the run. In all cases the newest complete step is saved, with what was
        to be logged of it if its evaluation is not done.
    """
    restored = run.restore(train_state.abstract_state(model.policy, optimizer, model.layout))
    if restored is None:
        state = first_state(model, optimizer, run.seed)
        step, unlogged = 0, {} if _is_due(run, players, 0) else None
    else:
        state, step, unlogged = restored
    if run.writer.last_step == step:
        unlogged = None  # its line was written after that state was saved
    history = History.from_json(run.restored_guards)
    try:
        if unlogged is not None:
            run.log_step(step, unlogged | _evaluate(run, players, state, step))
            unlogged = None
        while step < run.total_steps:
            if run.should_stop():
                raise StopRequested(f"stopped after step {step}")
            run.begin("update")
            state, metrics = take_step(state, step, guards.withheld_above(guarding, history))
            step += 1
            metrics, history, stop = judged(run, step, guarding, history, metrics)
            if _is_due(run, players, step):
                unlogged = metrics
                metrics = metrics | _evaluate(run, players, state, step)
                unlogged = None
            run.log_step(step, metrics)
            if run.is_save_due(step) or stop is not None:
                run.save(step, state, guards=history.to_json())
            if stop is not None:
                raise GuardStop(f"stopped after step {step}, which is saved: {stop}")
    except (StopRequested, ServerUnavailable):
        run.save(step, state, unlogged, guards=history.to_json())
        raise


def judged(
    run: Run, step: int, guarding: GuardSettings, history: History, metrics: Metrics
) -> tuple[Metrics, History, str | None]:
    """What the guards say about a step on recorded data.

    Args:
      run: tells it to whoever watches.
      step: steps done, this one included.
      guarding: section guards.
      history: before the step.
      metrics: of the step.

    Returns:
      The metrics with what was found, the history after the step, and why the run ends if it does.
    """
    found = guards.of_update(guarding, history, metrics)
    run.warn(step, guards.unspoken(found, history))
    after = guards.remembered(guarding, history, metrics, found)
    return metrics | guards.metrics_of(found), after, guards.stop_of(found)


def first_state(model: Model, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """The state before the first step, placed as a restored one is: both run the same programs."""
    params = model.initial_params(seed)
    state = train_state.create(model.policy, optimizer, params, model.layout)
    return state if model.layout is not None else jax.device_put(state, jax.local_devices()[0])


def _is_due(run: Run, players: Players | None, step: int) -> bool:
    return players is not None and players.settings.evaluation.is_due(step, run.total_steps)


def _evaluate(run: Run, players: Players | None, state: TrainState, step: int) -> Metrics:
    if players is None:
        return {}
    return held_out.evaluate_offline(run, players, state.params, step)
