"""Training loop of online RL.

    for each step:
        collect      sample groups of episodes with the current weights     rollout_step.py
        score        reference log-probabilities, critic values             update_step.py
        advantages   rewards, returns, advantages of all tokens             learner/experience.py
        update       optimiser steps on mini-batches, under guards          update_step.py
        controllers  baseline, KL coefficient, horizon of the next step     learner/controller_state.py
        hand over    weights to the sampler; log, evaluate, checkpoint

With `rollout.max_off_policy_steps=1` the rollout of the next step runs during the update and uses
the weights before this update. Evaluations and checkpoints wait until that rollout ends.
"""

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.jobs.evaluation_step import evaluate_step
from agentgym_jax.jobs.rl.build import RLParts
from agentgym_jax.jobs.rl.metrics import critic_metrics, group_metrics
from agentgym_jax.jobs.rl.prefetch import RolloutPrefetcher
from agentgym_jax.jobs.rl.rollout_step import Rollout
from agentgym_jax.jobs.rl.update_step import critic_values, reference_logprobs, update_policy
from agentgym_jax.jobs.run import Run, StopRequested
from agentgym_jax.jobs.sft import warm_start
from agentgym_jax.learner.controller_state import ControllerState, horizon_statistics
from agentgym_jax.learner.experience import Experience, make_experience
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import GuardStop, History
from agentgym_jax.trajectory import to_record

Metrics = dict[str, float]


@dataclasses.dataclass(frozen=True)
class LoopState:
    """State between two steps, as saved in a checkpoint.

    Attributes:
      step: Number of steps done.
      state: Weights and optimiser state.
      controllers: State of the controllers.
      unlogged: Metrics of the last step until they are written; then None.
      behaviour: Weights that sample the next step, if they are older than those in `state`.
      history: History of the guards.
      stop: Message of a guard that ends the run after the last step; else None.
    """

    step: int
    state: TrainState
    controllers: ControllerState
    unlogged: Metrics | None = None
    behaviour: Any = None
    history: History = History()
    stop: str | None = None

    def add_metrics(self, metrics: Metrics) -> "LoopState":
        """Returns the state with more metrics of the last step."""
        return dataclasses.replace(self, unlogged=(self.unlogged or {}) | metrics)

    def save(self, run: Run) -> None:
        """Saves a checkpoint, unless this step already has one."""
        run.save(
            self.step,
            self.state,
            self.unlogged,
            controllers=self.controllers.to_json(),
            guards=self.history.to_json(),
            behaviour=self.behaviour,
        )


def train(run: Run, parts: RLParts) -> None:
    """Trains until `run.total_steps` steps are done; a resumed run starts at its newest checkpoint.

    Raises:
      StopRequested: The user requested a stop.
      ServerUnavailable: An environment was unavailable for too long. Training does not continue on
        other environments, because the drawn tasks would then depend on the time of the outage.
      GuardStop: A guard ends the run. After each of these errors the newest complete step is saved.
    """
    now, reference = restore_or_create(run, parts)
    with RolloutPrefetcher(run, parts) as rollouts:
        try:
            if now.behaviour is not None and now.step < run.total_steps:
                rollouts.begin(now.controllers, now.step)
                rollouts.wait()
            parts.agent.set_params(now.state.params, version=now.step)
            # a line with this step was already written after the checkpoint
            if run.writer.last_step != now.step:
                now = _log_step(run, parts, now)
            while now.step < run.total_steps:
                started = time.perf_counter()
                now = train_step(run, parts, rollouts, now, reference)
                if parts.settings.rollout.max_off_policy_steps:
                    now = now.add_metrics({"time/collect_wait_s": rollouts.wait()})
                now = now.add_metrics({"time/iteration_s": time.perf_counter() - started})
                parts.agent.set_params(now.state.params, version=now.step)
                now = _log_step(run, parts, now)
                if run.is_save_due(now.step) or now.stop is not None:
                    now.save(run)
                if now.stop is not None:
                    raise GuardStop(f"stopped after step {now.step}, which is saved: {now.stop}")
                if run.should_stop():
                    raise StopRequested(f"stopped after step {now.step}")
        except (StopRequested, ServerUnavailable):
            now.save(run)
            raise


def train_step(
    run: Run, parts: RLParts, rollouts: RolloutPrefetcher, now: LoopState, reference
) -> LoopState:
    """Takes one training step: rollout, scores, advantages, controllers, update.

    With `max_off_policy_steps=1` this function also starts the rollout of the next step.
    """
    settings = parts.settings

    # Collect.
    rollout = rollouts.take(now.controllers, now.step)
    trajectories = rollout.groups.trajectories

    # Score.
    reference_scores = None
    if settings.controllers.uses_kl_reward:
        reference_scores = reference_logprobs(parts, reference, trajectories)
    values = critic_values(parts, now.state, trajectories)

    # Rewards and advantages.
    experience = make_experience(
        trajectories,
        **settings.experience_options,
        expected_returns=now.controllers.expected_returns,
        kl_coef=now.controllers.kl_coef,
        reference_logprobs=reference_scores,
        values_after=values,
    )
    run.folder.write_trajectories(now.step + 1, make_records(rollout, experience))
    metrics = dict(rollout.metrics) | critic_metrics(experience)
    metrics |= group_metrics(experience, rollout.groups.tasks, tuple(settings.environments))

    # The controllers do not depend on the update, so the next rollout can start before the update.
    controllers, controller_metrics = update_controllers(
        parts, now.controllers, experience, rollout
    )
    behaviour = None
    if settings.rollout.max_off_policy_steps:
        behaviour = parts.agent.sampler.params
        if now.step + 1 < run.total_steps:
            rollouts.begin(controllers, now.step + 1)

    # Update, under guards.
    findings = guards.check_episodes(settings.guards, now.history, metrics)
    state, update_metrics, findings = update_policy(
        run, parts, now.state, reference, experience, now.step, now.history, findings
    )
    metrics |= update_metrics | controller_metrics | guards.guard_metrics(findings)
    run.warn(now.step + 1, guards.new_findings(findings, now.history))
    return LoopState(
        step=now.step + 1,
        state=state,
        controllers=controllers,
        unlogged=metrics,
        behaviour=behaviour,
        history=guards.update_history(settings.guards, now.history, metrics, findings),
        stop=guards.stop_reason(findings),
    )


def restore_or_create(run: Run, parts: RLParts) -> tuple[LoopState, Any]:
    """Returns the state of the newest checkpoint or a new state, and the reference weights if
    needed.

    If the next rollout needs weights older than those of the state, this function gives them to the
    sampler.
    """
    restored = run.restore(parts.abstract_state())
    params = None
    if restored is None or parts.settings.needs_reference:
        params = _initial_params(run, parts)
    reference = params if parts.settings.needs_reference else None
    if restored is None:
        controllers = parts.settings.controllers.initial_state()
        return LoopState(0, parts.create_state(params), controllers), reference
    state, step, unlogged = restored
    behaviour = None
    if parts.settings.rollout.max_off_policy_steps and step:
        behaviour = run.checkpoints.restore_behaviour(step, _abstract_behaviour(parts))
        parts.agent.sampler.set_params(behaviour, version=step - 1)
    controllers = ControllerState.from_json(run.restored_controllers or {})
    history = History.from_json(run.restored_guards)
    return LoopState(step, state, controllers, unlogged, behaviour, history), reference


def _abstract_behaviour(parts: RLParts):
    policy = parts.model.decode_policy
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, policy.dtype), policy.abstract_params()
    )


def _initial_params(run: Run, parts: RLParts):
    """Returns the weights before RL: the model's weights, or those after the warm start."""
    params = parts.model.initial_params(run.seed)
    settings = parts.settings
    if settings.sft is None:
        return params
    preambles = {name: text.preamble for name, text in parts.agent.environments.texts.items()}
    return warm_start(
        run,
        parts.model,
        settings.sft,
        parts.conversations,
        preambles,
        params,
        settings.logprob_chunk,
    )


def update_controllers(
    parts: RLParts, controllers: ControllerState, experience: Experience, rollout: Rollout
) -> tuple[ControllerState, Metrics]:
    """Returns the state of the controllers after a step, and their metrics."""
    metrics: Metrics = {}
    divergence = experience.reference_divergence
    if divergence is not None:
        metrics = {"policy/kl_reward": divergence, "policy/kl_reward_coef": controllers.kl_coef}
    if parts.settings.algorithm.takes_baseline:
        baselines = list(controllers.expected_returns.values())
        metrics["policy/expected_return"] = float(np.mean(baselines)) if baselines else 0.0
    after = parts.settings.controllers.update(
        controllers,
        mean_returns=experience.mean_returns,
        divergence=divergence,
        horizons=horizon_statistics(rollout.sampled.trajectories, rollout.sampled.limits),
        tasks=len(rollout.sampled.tasks),
    )
    return after, metrics


def make_records(rollout: Rollout, experience: Experience) -> list[dict[str, Any]]:
    """Returns records of all episodes of a step; records of kept episodes include advantages.

    Args:
      rollout: Episodes of the step.
      experience: Tokens and advantages of the kept episodes, in the order of `rollout.groups`.
    """
    sampled = rollout.sampled
    size = sampled.size
    rows = {i * size + k: n * size + k for n, i in enumerate(rollout.kept) for k in range(size)}
    records = []
    for i, trajectory in enumerate(sampled.trajectories):
        record = to_record(trajectory) | {"discarded": i not in rows}
        # the tokens of an episode without turns may not fit a row
        if i in rows and trajectory.turns:
            record |= _token_values(experience, rows[i], len(trajectory.tokens))
        records.append(record)
    return records


def _token_values(experience: Experience, row: int, length: int) -> dict[str, list[float]]:
    """Returns the advantages and reference log-probabilities of an episode, for the viewer."""
    values = {"advantages": experience.advantage_BT[row, :length]}
    if experience.reference_logprobs is not None:
        values["reference_logprobs"] = experience.reference_logprobs[row]
    return {name: np.round(x.astype(float), 6).tolist() for name, x in values.items()}


def _log_step(run: Run, parts: RLParts, now: LoopState) -> LoopState:
    """Writes the metrics of the last step; evaluates the policy first if an evaluation is due."""
    metrics = dict(now.unlogged or {})
    settings = parts.settings
    if settings.evaluation.is_due(now.step, run.total_steps):
        metrics |= evaluate_step(run, parts.agent, settings, now.step)
    if metrics:
        run.log_step(now.step, metrics)
    return dataclasses.replace(now, unlogged=None)
