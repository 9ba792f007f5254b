"""Update of a training step: packs its mini-batches and takes optimiser steps under guards."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.jobs.after_step import Metrics
from agentgym_jax.jobs.run import LoopState, Run
from agentgym_jax.learner.experience import Experience, mini_batch_rows, pack_experience
from agentgym_jax.learner.optimizer import get_learning_rate
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import own_rows, put_batch, put_scalar
from agentgym_jax.mesh.sharding import Layout, launch_lock
from agentgym_jax.models.policy import Params
from agentgym_jax.rl.build import RLParts
from agentgym_jax.rl.rl_config import (
    RLSettings,
    policy_updates,
    policy_updates_before,
    updates_before,
)
from agentgym_jax.rl.step_scores import gap_of_stale_weights, score_batch
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import Finding
from agentgym_jax.text.grammars import Grammars

_GAPS = ("logprob_gap_mean", "logprob_gap_max")
_NO_UPDATE = {"policy/updates": 0.0, "policy/skipped": 1.0}


def update_policy(
    run: Run,
    parts: RLParts,
    now: LoopState,
    reference: Params | None,
    experience: Experience,
    findings: Sequence[Finding],
) -> tuple[TrainState, Metrics, list[Finding]]:
    """Takes all optimiser steps on one rollout, unless a guard withholds the update.

    `reference` are the weights of the reference policy, or None if no reference is needed.
    `findings` are those of the guards that checked the episodes; the result has all of this step.
    """
    settings, step, found = parts.settings, now.step, list(findings)
    metrics = age_metrics(experience.trajectories, step)
    informative_P = experience.informative_P
    needed = settings.learner.min_informative_groups if settings.algorithm.row.needs_groups else 0
    if informative_P.sum() < needed:
        run.console.note(
            f"step {step + 1}: no update, {informative_P.sum()} of {informative_P.size} "
            f"groups are informative (learner.min_informative_groups={needed}; "
            "docs/troubleshooting.md)"
        )
        return now.state, metrics | _NO_UPDATE, found
    started = time.perf_counter()
    packed = _pack_mini_batches(
        settings, experience, step, parts.model.grammars, parts.model.layout
    )
    if not packed:
        run.console.note(f"step {step + 1}: no update, no episode has anything to train on")
        return now.state, metrics | _NO_UPDATE, found
    missing = reference if experience.reference_logprobs is None else None
    batches = {
        number: score_batch(parts, now.state, missing, batch, (run.seed, step, number))
        for number, batch in packed.items()
    }
    metrics |= _batch_metrics(list(packed.values()))
    is_stale = metrics["policy/off_policy_steps"] > 0
    max_gap = float(np.float32(settings.learner.max_logprob_gap))  # as the update compares it
    if is_stale:
        metrics |= gap_of_stale_weights(parts, now, experience)
        found += guards.check_scores(settings.guards, metrics, max_gap)
    metrics["time/score_s"] = time.perf_counter() - started
    if guards.withholds_update(found):
        return now.state, metrics | _NO_UPDATE, found
    position, total = policy_updates_before(settings, step), policy_updates(settings)
    rate = get_learning_rate(settings.optimizer, position, total_steps=total)
    started = time.perf_counter()
    withholds = settings.guards.logprob_gap in ("skip", "stop") and not is_stale
    limits = (
        guards.grad_norm_limit(settings.guards, now.history),
        max_gap if withholds else math.inf,
    )
    state, updated, gap = _run_epochs(run, parts, now.state, batches, step, limits)
    seconds = time.perf_counter() - started
    name = "stale_gap" if is_stale else "logprob_gap"
    metrics |= {f"policy/{key.replace('logprob_gap', name)}": x for key, x in gap.items()}
    if not is_stale:
        found += guards.check_scores(settings.guards, metrics, max_gap)
        if guards.withholds_update(found):  # the first optimiser step has changed nothing
            return state, metrics | _NO_UPDATE, found
    metrics |= updated
    metrics["time/update_s"] = seconds
    metrics["rate/train_tokens_per_s"] = metrics["batch/tokens"] * settings.learner.epochs / seconds
    metrics["policy/learning_rate"] = rate
    return state, metrics, found + guards.check_update(settings.guards, now.history, metrics)


def age_metrics(trajectories: Sequence[Trajectory], step: int) -> Metrics:
    """Returns the age of the weights that sampled the action tokens, in training steps.

    These are the mean and maximum age, the share of tokens of each age, and the share of episodes
    with tokens of several versions.
    """
    versions = [t.policy_versions[t.action_mask] for t in trajectories]
    versions = [found for found in versions if len(found)]
    if not versions:
        return {"policy/off_policy_steps": 0.0}
    tokens = step - np.concatenate(versions)
    ages, counts = np.unique(tokens, return_counts=True)
    return {
        "policy/off_policy_steps": float(tokens.mean()),
        "policy/off_policy_steps_max": float(ages[-1]),
        "policy/mixed_version_episodes": float(
            np.mean([len(set(found)) > 1 for found in versions])
        ),
        **{
            f"policy/off_policy_share/{age}": float(count / len(tokens))
            for age, count in zip(ages, counts, strict=True)
        },
    }


def _pack_mini_batches(
    settings: RLSettings,
    experience: Experience,
    step: int,
    grammars: Grammars | None,
    layout: Layout | None,
) -> dict[int, TokenBatch]:
    """Packs the mini-batches of a step; omits mini-batches without trainable tokens.

    Rows of other processes have no tokens and log-probabilities.
    """
    learner, algorithm = settings.learner, settings.algorithm
    mini_batches = mini_batch_rows(
        settings.rollout.tasks_per_step, settings.rollout.group_size, learner.mini_batches, step
    )
    # With one of these terms, episodes with zero advantage still have a gradient.
    keep_zero_advantage = bool(algorithm.kl_coef or algorithm.entropy_coef or settings.critic)
    # The means of the covariance are those of all episodes.
    keep_zero_advantage |= algorithm.row.needs_marks
    packed = {}
    for number, rows in enumerate(mini_batches):
        batch = pack_experience(
            experience,
            rows,
            aggregation_options=algorithm.aggregation,
            row_length=learner.row_length,
            num_row_lengths=learner.num_row_lengths,
            rows_multiple=learner.micro_rows,
            keep_zero_advantage=keep_zero_advantage,
            grammars=grammars,
            own_rows=own_rows(learner.micro_rows, layout),
        )
        if batch is not None:
            packed[number] = batch
    return packed


def _batch_metrics(batches: Sequence[TokenBatch]) -> Metrics:
    tokens = float(sum(np.sum(batch.segment_ids > 0) for batch in batches))
    return {
        "batch/rows": float(sum(len(batch.tokens) for batch in batches)),
        "batch/sequences": float(sum(batch.sequence_ids.max() + 1 for batch in batches)),
        "batch/tokens": tokens,
        "batch/action_tokens": float(sum(batch.action_mask.sum() for batch in batches)),
        "batch/padding_share": 1.0 - tokens / sum(batch.tokens.size for batch in batches),
    }


def _run_epochs(
    run: Run,
    parts: RLParts,
    state: TrainState,
    batches: Mapping[int, TokenBatch],
    step: int,
    limits: tuple[float, float],
) -> tuple[TrainState, Metrics, Metrics]:
    """Takes `epochs` passes over the mini-batches, one optimiser step each; averages their metrics.

    A mini-batch missing in `batches` still counts in the learning-rate schedules. `limits` are those
    of the gradient norm and, for the first optimiser step, of the difference between sampler and
    learner. If the first step exceeds the second limit, it is skipped and the others are not taken.

    Returns:
      The state, the metrics, and the differences between sampler and learner before the first step.
    """
    logged: list[Mapping[str, jax.Array]] = []
    grad_limit, gap_limit = limits
    rollout, learner = parts.settings.rollout, parts.settings.learner
    episodes = rollout.tasks_per_step * rollout.group_size // learner.mini_batches
    # With one episode per row; the branches of some episodes may need more.
    max_micro_batches = -(-episodes // learner.micro_rows)
    max_micro_batches = max([max_micro_batches, *(len(b.tokens) for b in batches.values())])
    numbers = [(epoch, number) for epoch in range(learner.epochs) for number in batches]
    run.begin("update", len(numbers))
    for epoch, number in numbers:
        run.console.phase("update", len(logged), len(numbers))
        padded = batching.pad_micro_batches(batches[number], max_micro_batches)
        state, metrics = _optimiser_step(
            parts,
            state,
            put_batch(padded, parts.model.layout),
            (grad_limit, math.inf if logged else gap_limit),
            step=step,
            number=epoch * learner.mini_batches + number,
        )
        logged.append(metrics)
        if len(logged) == 1 and _exceeds(metrics, gap_limit):
            break
    host = jax.device_get(logged)
    gap = {k: float(host[0][k]) for k in _GAPS if k in host[0]}
    means = {_metric_name(k): float(np.mean([m[k] for m in host])) for k in host[0] if k not in gap}
    if not parts.settings.needs_reference:
        means.pop("policy/kl_k3", None)  # without a reference this metric is meaningless
    for key in ("skipped", "nonfinite", "value_skipped"):
        if key in host[0]:
            means[_metric_name(key)] = float(sum(m[key] for m in host))
    if "policy/skipped" in means:
        means["policy/ratio_max"] = float(max(m["ratio_max"] for m in host))
        means["policy/grad_norm_max"] = float(max(m["grad_norm"] for m in host))
    means["policy/updates"] = len(host) - means.get("policy/skipped", len(host))
    return state, means, gap


def _exceeds(metrics: Mapping[str, jax.Array], gap_limit: float) -> bool:
    """Returns True if an optimiser step was skipped because its policy differs from the sampler.

    The host waits for the step only if there is a limit.
    """
    if math.isinf(gap_limit) or _GAPS[0] not in metrics:
        return False
    return bool(jax.device_get(metrics[_GAPS[0]]) > gap_limit)


def _optimiser_step(
    parts: RLParts,
    state: TrainState,
    batch: TokenBatch,
    limits: tuple[float, float],
    *,
    step: int,
    number: int,
) -> tuple[TrainState, Mapping[str, jax.Array]]:
    """Takes optimiser step `number` of a training step, for the policy and a separate critic."""
    critic, settings, layout = parts.critic, parts.settings, parts.model.layout
    grad_limit, gap_limit = (put_scalar(np.float32(limit), layout) for limit in limits)
    planned = np.int32(policy_updates_before(settings, step) + number)
    position = put_scalar(planned, layout)
    if critic is None or critic.update is None:
        with launch_lock:
            return parts.update(state, batch, grad_limit, position, parts.model.base, gap_limit)
    assert settings.critic is not None, "a critic has a section"
    metrics: Mapping[str, jax.Array] = {}
    if step >= settings.critic.warmup_steps:
        with launch_lock:
            updated, metrics = parts.update(
                dataclasses.replace(state, critic=None),
                batch,
                grad_limit,
                position,
                parts.model.base,
                gap_limit,
            )
        state = dataclasses.replace(updated, critic=state.critic)
        if _exceeds(metrics, limits[1]):
            return state, metrics
    critic_position = put_scalar(np.int32(updates_before(settings, step) + number), layout)
    with launch_lock:
        critic_state, value_metrics = critic.update(state.critic, batch, critic_position)
    return dataclasses.replace(state, critic=critic_state), {**metrics, **value_metrics}


def _metric_name(key: str) -> str:
    """Returns a metric name: `critic/loss` for the key `value_loss`, `policy/loss` for `loss`."""
    name = key.removeprefix("value_")
    return f"critic/{name}" if name != key else f"policy/{name}"
