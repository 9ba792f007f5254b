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
from agentgym_jax.training import held_out

Metrics = dict[str, float]
Step = Callable[[TrainState, int], tuple[TrainState, Metrics]]


def fit(
    run: Run,
    model: Model,
    optimizer: optax.GradientTransformation,
    take_step: Step,
    players: Players | None,
) -> None:
    """Trains until `run.total_steps`, from wherever the run folder stands.

    Args:
      run: whose folder keeps the state.
      model: whose weights the run begins with.
      optimizer: of the steps.
      take_step: the state and how many steps are done -> the next state and its metrics.
      players: evaluate when config.evaluation says; None never does.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable: an environment failed all calls for long. In both cases the newest
        complete step is saved, with what was to be logged of it if its evaluation is not done.
    """
    restored = run.restore(train_state.abstract_state(model.policy, optimizer, model.layout))
    if restored is None:
        state = first_state(model, optimizer, run.seed)
        step, unlogged = 0, {} if _is_due(run, players, 0) else None
    else:
        state, step, unlogged = restored
    if run.writer.last_step == step:
        unlogged = None  # its line was written after that state was saved
    try:
        if unlogged is not None:
            run.log_step(step, unlogged | _evaluate(run, players, state, step))
            unlogged = None
            run.save(step, state)
        while step < run.total_steps:
            if run.should_stop():
                raise StopRequested(f"stopped after step {step}")
            state, metrics = take_step(state, step)
            step += 1
            if _is_due(run, players, step):
                unlogged = metrics
                metrics = metrics | _evaluate(run, players, state, step)
                unlogged = None
            run.log_step(step, metrics)
            if run.is_save_due(step):
                run.save(step, state)
    except (StopRequested, ServerUnavailable):
        run.save(step, state, unlogged)
        raise


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
