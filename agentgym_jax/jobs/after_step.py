"""Work of every training loop after a step: guards, evaluation, metrics, checkpoint."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_jax.jobs.run import LoopState, Run, StopRequested
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import Finding, GuardSettings, GuardStop

Metrics = dict[str, float]


def finish_step(
    run: Run,
    options: GuardSettings,
    before: LoopState,
    state: TrainState,
    metrics: Metrics,
    findings: Sequence[Finding],
    **changes: Any,
) -> LoopState:
    """Returns the loop state after a step; reports the findings of its guards.

    Args:
      run: Run whose console shows the findings.
      options: Checked options of the guards.
      before: Loop state before the step.
      state: Weights and optimiser state after the step.
      metrics: Metrics of the step.
      findings: Findings of all guards in the step.
      changes: Further fields of the new loop state.
    """
    run.warn(before.step + 1, guards.new_findings(findings, before.history))
    return LoopState(
        step=before.step + 1,
        state=state,
        unlogged=metrics | guards.guard_metrics(findings),
        history=guards.update_history(options, before.history, metrics, findings),
        stop=guards.stop_reason(findings),
        **changes,
    )


def log_step(run: Run, now: LoopState, evaluate: Callable[[LoopState], Metrics]) -> LoopState:
    """Writes the metrics of the last step and of `evaluate`, unless the file has this step."""
    if run.writer.last_step != now.step:
        metrics = (now.unlogged or {}) | evaluate(now)
        if metrics:
            run.log_step(now.step, metrics)
    return dataclasses.replace(now, unlogged=None)


def save_or_stop(run: Run, now: LoopState) -> None:
    """Saves a checkpoint if one is due.

    Raises:
      GuardStop: A guard ends the run; the step is saved.
      StopRequested: The user requested a stop, and the run has more steps.
    """
    if run.is_save_due(now.step) or now.stop is not None:
        run.save(now)
    if now.stop is not None:
        raise GuardStop(f"stopped after step {now.step}, which is saved: {now.stop}")
    if now.step < run.total_steps and run.should_stop():
        raise StopRequested(f"stopped after step {now.step}")
