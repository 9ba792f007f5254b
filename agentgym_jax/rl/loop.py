"""Training loop of online RL.

    for each step:
        collect      sample groups of episodes with the current weights  rollout_step.py
        score        reference log-probabilities, critic values          step_scores.py
        advantages   rewards, returns, advantages of all tokens          learner/experience.py
        controllers  baseline, KL coefficient, horizon of the next step  learner/controller_state.py
        update       optimiser steps on mini-batches, under guards       update_step.py
        hand over    weights to the sampler
        finish       evaluate, log, checkpoint                           after_step.py

With `rollout.max_off_policy_steps` the rollout of the next step runs during the update and uses the
weights before this update; episodes of further steps run at the same time (background_rollouts.py).
Evaluations and checkpoints wait until that rollout ends.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.episodes.trajectory import to_record
from agentgym_jax.jobs.after_step import Metrics, finish_step, log_step, save_or_stop
from agentgym_jax.jobs.run import LoopState, Run, SampledUpdate, StopRequested
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.learner.controller_state import ControllerState, horizon_statistics
from agentgym_jax.learner.experience import Experience, make_experience
from agentgym_jax.mesh import processes
from agentgym_jax.models.policy import Params
from agentgym_jax.rl.background_rollouts import RolloutPrefetcher
from agentgym_jax.rl.build import RLParts
from agentgym_jax.rl.rl_metrics import critic_metrics, group_metrics
from agentgym_jax.rl.rollout_step import Rollout
from agentgym_jax.rl.step_scores import critic_values, reference_logprobs
from agentgym_jax.rl.update_step import update_policy
from agentgym_jax.supervised.sft import warm_start
from agentgym_jax.telemetry import guards


def train(run: Run, parts: RLParts) -> None:
    """Trains until `run.total_steps` steps are done; a resumed run starts at its newest checkpoint.

    Raises:
      StopRequested: The user requested a stop.
      ServerUnavailable: An environment was unavailable for too long. Training does not continue on
        other environments, because the drawn tasks would then depend on the time of the outage.
      GuardStop: A guard ends the run. After each of these errors the newest complete step is saved.
    """
    now, reference = restore_or_create(run, parts)
    with RolloutPrefetcher(run, parts, now.step) as rollouts:
        try:
            if now.step < run.total_steps:
                rollouts.repeat(now.behaviour)
            parts.agent.set_params(now.state.params, version=now.step)
            now = log_step(run, parts, now)
            while now.step < run.total_steps:
                started = time.perf_counter()
                now = train_step(run, parts, rollouts, now, reference)
                assert now.unlogged is not None, "the step has metrics"
                if parts.settings.rollout.max_off_policy_steps:
                    now.unlogged["time/collect_wait_s"] = rollouts.wait()
                now.unlogged["time/iteration_s"] = time.perf_counter() - started
                parts.agent.set_params(now.state.params, version=now.step)
                now = log_step(run, parts, now)
                save_or_stop(run, now)
        except (StopRequested, ServerUnavailable):
            run.save(now)
            raise


def train_step(
    run: Run, parts: RLParts, rollouts: RolloutPrefetcher, now: LoopState, reference: Params | None
) -> LoopState:
    """Takes one training step: rollout, scores, advantages, controllers, update.

    With `max_off_policy_steps` this function also starts the rollout of the next step.
    """
    settings = parts.settings
    assert now.controllers is not None, "every RL job has controllers"

    # Collect. If no rollout runs during the update, its memory is free for the update.
    rollout = rollouts.take(now.controllers, now.step)
    if not settings.rollout.max_off_policy_steps:
        parts.agent.sampler.release()
    trajectories = rollout.groups.trajectories

    # Score.
    reference_scores = None
    if settings.controllers.uses_kl_reward:
        assert reference is not None, "the reward needs it"
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
    run.write_records(now.step + 1, functools.partial(make_records, rollout, experience))
    metrics = dict(rollout.metrics) | critic_metrics(experience)
    metrics |= group_metrics(experience, rollout.groups.tasks, tuple(settings.environments))

    # Controllers. They do not depend on the update, so the next rollout can start before it.
    controllers, controller_metrics = update_controllers(
        parts, now.controllers, experience, rollout, now.step
    )
    behaviour: tuple[SampledUpdate, ...] = ()
    if settings.rollout.max_off_policy_steps:
        params = parts.agent.spread_params
        if parts.model.adapters is not None:  # the update replaces these arrays
            params = jax.tree.map(jnp.copy, now.state.params)
        behaviour = (*now.behaviour, SampledUpdate(now.step, controllers, params))
        behaviour = behaviour[-settings.rollout.max_off_policy_steps :]
        if now.step + 1 < run.total_steps:
            rollouts.begin(controllers, now.step + 1)

    # Update, under guards.
    findings = guards.check_episodes(settings.guards, now.history, metrics)
    state, update_metrics, findings = update_policy(
        run, parts, now, reference, experience, findings
    )
    metrics |= update_metrics | controller_metrics
    return finish_step(
        run, parts, now, state, metrics, findings, controllers=controllers, behaviour=behaviour
    )


def restore_or_create(run: Run, parts: RLParts) -> tuple[LoopState, Params | None]:
    """Returns the newest or a new loop state, and the weights of the reference if one is needed.

    The weights of the reference have the types in which the learner computes. They are a copy,
    because the update replaces the policy's weights.
    If rollouts used weights older than those of the state, these are restored, too.
    """
    settings, model = parts.settings, parts.model
    now = run.restore(parts.abstract_state())
    reference = None
    is_reference = settings.needs_reference and parts.teacher is None
    if now is None or is_reference:
        # the run folder keeps the weights after a warm start
        if is_reference and not settings.has_warm_start:
            model.pin(run.folder)
        reference = model.initial_params()
        if settings.sft is not None and settings.has_warm_start:
            reference = warm_start(run, parts, settings.sft, reference)
    if now is None:
        assert reference is not None, "loaded above"
        controllers = settings.controllers.initial_state()
        now = LoopState(0, parts.create_state(reference), controllers=controllers)
    elif settings.rollout.max_off_policy_steps:
        now = _restore_behaviour(run, parts, now)
    if parts.teacher is not None:
        return now, parts.teacher.load(run.folder)
    if reference is None or not settings.needs_reference:
        return now, None
    return now, model.policy.cast_params(reference)


def _restore_behaviour(run: Run, parts: RLParts, now: LoopState) -> LoopState:
    """Restores the weights of earlier updates; with adapters only these are saved."""
    if not now.behaviour:
        raise CheckpointError(
            f"checkpoint {now.step} lacks the rollout weights that max_off_policy_steps needs: an "
            "earlier version of agentgym_jax wrote it. Finish the run with that version"
        )
    model = parts.model
    if model.adapters is not None:
        abstract = model.abstract_params()
    else:
        abstract, shardings = model.decode_policy.abstract_sampler_params(), model.spread_shardings
        if shardings is not None:
            abstract = jax.tree.map(lambda x, s: x.update(sharding=s), abstract, shardings)
    wanted = {str(update.version): abstract for update in now.behaviour}
    params = run.checkpoints.restore_behaviour(now.step, wanted)
    behaviour = [
        dataclasses.replace(update, params=params[str(update.version)]) for update in now.behaviour
    ]
    return dataclasses.replace(now, behaviour=tuple(behaviour))


def update_controllers(
    parts: RLParts,
    controllers: ControllerState,
    experience: Experience,
    rollout: Rollout,
    step: int,
) -> tuple[ControllerState, Metrics]:
    """Returns the state of the controllers after a step, and their metrics."""
    metrics: dict[str, float] = {}
    divergence = experience.reference_divergence
    if divergence is not None:
        metrics = {"policy/kl_reward": divergence, "policy/kl_reward_coef": controllers.kl_coef}
    if parts.settings.algorithm.row.takes_baseline:
        baselines = list(controllers.expected_returns.values())
        metrics["policy/expected_return"] = float(np.mean(baselines)) if baselines else 0.0
    sampled, settings = rollout.sampled, parts.settings
    horizons = horizon_statistics(sampled.trajectories, sampled.limits)
    # A schedule may have advanced after overlapping rollouts had drawn their limits. Episodes with
    # the old limit say nothing about the new one.
    limits = settings.horizon.limits(sampled.tasks, step, controllers.horizons, seed=settings.seed)
    for drawn, current in zip(sampled.limits, limits, strict=True):
        if drawn != current:
            horizons.pop(drawn.place, None)
    after = settings.controllers.update(
        controllers,
        mean_returns=experience.mean_returns,
        divergence=divergence,
        horizons=horizons,
        tasks_taken=rollout.tasks_taken,
        tasks=sampled.tasks,
        trajectories=sampled.trajectories,
    )
    averages = [state.average for state in after.horizons.values() if state.average is not None]
    if averages:
        metrics["horizon/average"] = float(np.mean(averages))
    return after, metrics


def make_records(rollout: Rollout, experience: Experience) -> list[dict[str, Any]]:
    """Returns the records of the episodes of a step that this process writes.

    Records of kept episodes include advantages, unless a critic or reference has made them NaN.
    """
    size = rollout.sampled.size
    rows = {i * size + k: n * size + k for n, i in enumerate(rollout.kept) for k in range(size)}
    records = []
    for i in processes.own_part(len(rollout.sampled.trajectories)):
        trajectory = rollout.sampled.trajectories[i].load()
        record = to_record(trajectory) | {"discarded": i not in rows}
        # the tokens of an episode without turns may not fit a row
        if i in rows and trajectory.turns:
            values = {"advantages": experience.advantage_BT[rows[i], : len(trajectory.tokens)]}
            if experience.reference_logprobs is not None:
                values["reference_logprobs"] = experience.reference_logprobs[rows[i]]
            record |= {k: _rounded(v) for k, v in values.items() if np.isfinite(v).all()}
        records.append(record)
    return records


def _rounded(values: np.ndarray) -> list[float]:
    return np.round(values.astype(float), 6).tolist()
