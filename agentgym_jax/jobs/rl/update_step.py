"""Update of a training step: scores under the current policy, then optimiser steps."""

import dataclasses
import time
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from agentgym_jax import batch as batching
from agentgym_jax.batch import TokenBatch
from agentgym_jax.jobs.rl.build import RLParts
from agentgym_jax.jobs.rl.config import policy_updates_before, updates_before
from agentgym_jax.jobs.run import Run
from agentgym_jax.learner.experience import Experience, mini_batch_rows, pack_experience
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import put_batch, put_limit, put_position
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import Finding, History
from agentgym_jax.trajectory import Trajectory

Metrics = dict[str, float]

_NO_UPDATE = {"policy/updates": 0.0, "policy/skipped": 1.0}


def update_policy(
    run: Run,
    parts: RLParts,
    state: TrainState,
    reference,
    experience: Experience,
    step: int,
    history: History,
    findings: Sequence[Finding],
) -> tuple[TrainState, Metrics, list[Finding]]:
    """Takes all optimiser steps on one rollout, unless a guard withholds the update.

    Args:
      run: Run whose console shows the progress.
      parts: Components of the job.
      state: State before the update.
      reference: Weights of the reference policy; None if no reference is needed.
      experience: Tokens and advantages of the step.
      step: Number of steps done before the update.
      history: History of the guards.
      findings: Findings of the guards that checked the episodes.

    Returns:
      The next state, the metrics, and all findings of the guards in this step.
    """
    settings = parts.settings
    found = list(findings)
    age = mean_off_policy_steps(experience.trajectories, step)
    informative_P = experience.informative_P
    needed = settings.learner.min_informative_groups if settings.algorithm.needs_groups else 0
    if informative_P.sum() < needed:
        run.console.note(
            f"step {step + 1}: no update, {informative_P.sum()} of {informative_P.size} "
            "groups are informative (learner.min_informative_groups="
            f"{settings.learner.min_informative_groups})"
        )
        return state, {"policy/off_policy_steps": age} | _NO_UPDATE, found
    metrics = {"policy/off_policy_steps": age}
    gaps: list[np.ndarray] = []
    started = time.perf_counter()
    batches = _score_mini_batches(parts, state, reference, experience, step, metrics, gaps)
    if not batches:
        run.console.note(f"step {step + 1}: no update, no episode has anything to train on")
        return state, {"policy/off_policy_steps": age} | _NO_UPDATE, found
    metrics |= _gap_metrics(gaps, is_stale=age > 0)
    metrics["time/score_s"] = time.perf_counter() - started
    found += guards.check_scores(settings.guards, metrics, settings.learner.max_logprob_gap)
    if guards.withholds_update(found):
        return state, metrics | _NO_UPDATE, found
    rate = parts.learning_rate(policy_updates_before(settings, step))
    started = time.perf_counter()
    limit = guards.grad_norm_limit(settings.guards, history)
    state, updated = _run_epochs(run, parts, state, batches, step, limit)
    seconds = time.perf_counter() - started
    metrics |= updated
    metrics["time/update_s"] = seconds
    metrics["rate/train_tokens_per_s"] = metrics["batch/tokens"] * settings.learner.epochs / seconds
    metrics["policy/learning_rate"] = rate
    return state, metrics, found + guards.check_update(settings.guards, history, metrics)


def mean_off_policy_steps(trajectories: Sequence[Trajectory], step: int) -> float:
    """Returns the mean age of the weights that sampled the action tokens, in training steps."""
    versions = [t.policy_versions[t.action_mask] for t in trajectories]
    return float(step - np.concatenate(versions).mean()) if any(map(len, versions)) else 0.0


def reference_logprobs(
    parts: RLParts, reference, trajectories: Sequence[Trajectory]
) -> list[np.ndarray]:
    """Returns the reference policy's log-probability of every token, one array per episode; 0
    except on actions.
    """
    batch = _pack_episodes(parts, trajectories)
    logprobs = _score(parts, reference, _put_micro_batches(parts, batch))
    return batching.unpack(logprobs, batch, len(trajectories))


def critic_values(
    parts: RLParts, state: TrainState, trajectories: Sequence[Trajectory]
) -> list[np.ndarray] | None:
    """Returns the critic's value after every token, one float32 array [n] per episode; None without
    a critic.
    """
    if parts.critic is None or state.critic is None:
        return None
    batch = _pack_episodes(parts, trajectories)
    score, params = parts.critic.score, state.critic.params
    values = [score(state.params, params, one) for one in _put_micro_batches(parts, batch)]
    return batching.unpack(np.stack(jax.device_get(values)), batch, len(trajectories))


def _pack_episodes(parts: RLParts, trajectories: Sequence[Trajectory]) -> TokenBatch:
    """Packs all tokens of some episodes into micro-batches for scoring; loss weights are not
    needed.
    """
    settings = parts.settings.learner
    # An episode without turns needs no scores, and its prompt may not fit a row.
    ends = [len(t.tokens) if t.turns else 1 for t in trajectories]
    packed = batching.pack(
        [
            {"tokens": t.tokens[:end], "action_mask": t.action_mask[:end]}
            for t, end in zip(trajectories, ends, strict=True)
        ],
        row_length=batching.tightest_row_length(
            ends, settings.row_length, settings.micro_rows, settings.num_row_lengths
        ),
        rows_multiple=settings.micro_rows,
    )
    return batching.micro_batches(packed, settings.micro_rows)


def _score_mini_batches(
    parts: RLParts,
    state: TrainState,
    reference,
    experience: Experience,
    step: int,
    metrics: Metrics,
    gaps: list[np.ndarray],
) -> dict[int, TokenBatch]:
    """Packs and scores the mini-batches of a step; omits mini-batches without trainable tokens."""
    settings = parts.settings
    batches: dict[int, TokenBatch] = {}
    mini_batches = mini_batch_rows(
        settings.rollout.tasks_per_step,
        settings.rollout.group_size,
        settings.learner.mini_batches,
        step,
    )
    for number, rows in enumerate(mini_batches):
        packed = pack_experience(
            experience,
            rows,
            aggregation_options=settings.aggregation_options,
            row_length=settings.learner.row_length,
            num_row_lengths=settings.learner.num_row_lengths,
            rows_multiple=settings.learner.micro_rows,
            keep_zero_advantage=settings.keeps_zero_advantage,
        )
        if packed is not None:
            is_known = experience.reference_logprobs is not None
            missing = None if is_known else reference
            batches[number] = score_batch(parts, state, missing, packed, metrics, gaps)
    return batches


def score_batch(
    parts: RLParts,
    state: TrainState,
    reference,
    packed: TokenBatch,
    metrics: Metrics,
    gaps: list[np.ndarray],
) -> TokenBatch:
    """Splits a batch into micro-batches; adds old and, if missing, reference log-probabilities.

    Args:
      parts: Components of the job.
      state: State before the update.
      reference: Weights of the reference policy; None if its log-probabilities are known or not
          needed.
      packed: Batch with the sampler's log-probabilities.
      metrics: Metrics to which the counts of the batch are added.
      gaps: List to which the differences of sampler and learner on action tokens are appended.
    """
    learner_settings = parts.settings.learner
    batch = batching.micro_batches(packed, learner_settings.micro_rows)
    placed = _put_micro_batches(parts, batch)
    learner = _score(parts, state.params, placed)
    gaps.append(np.abs(learner - batch.old_logprobs)[batch.action_mask])
    if parts.settings.old_logprobs_from == "learner":
        sequence = np.where(batch.action_mask, batch.sequence_ids, -1)
        factor = parts.settings.correction(learner, batch.old_logprobs, sequence)
        batch = dataclasses.replace(
            batch, old_logprobs=learner, advantages=factor * batch.advantages
        )
    if reference is not None:
        batch = dataclasses.replace(batch, reference_logprobs=_score(parts, reference, placed))
    counts = {
        "rows": packed.tokens.shape[0],
        "sequences": packed.sequence_ids.max() + 1,
        "tokens": np.sum(packed.segment_ids > 0),
        "action_tokens": packed.action_mask.sum(),
    }
    for name, count in counts.items():
        metrics[f"batch/{name}"] = metrics.get(f"batch/{name}", 0.0) + float(count)
    metrics["batch/padding_share"] = batching.padding_share(packed)
    return batch


def _gap_metrics(gaps: Sequence[np.ndarray], *, is_stale: bool) -> Metrics:
    """Returns the mean and maximum difference of sampler and learner log-probabilities on action
    tokens.

    Tokens sampled by older weights (`is_stale`) have a separate metric. Their difference includes
    the updates since then, so it does not measure errors of the sampler.
    """
    gap = np.concatenate(gaps)
    kind = "stale_gap" if is_stale else "logprob_gap"
    return {f"policy/{kind}_mean": float(gap.mean()), f"policy/{kind}_max": float(gap.max())}


def _put_micro_batches(parts: RLParts, batch: TokenBatch) -> list[TokenBatch]:
    """Returns M micro-batches on the devices, given a host batch [M, B, T]."""
    return [
        put_batch(jax.tree.map(lambda x, m=m: x[m], batch), parts.model.layout)
        for m in range(batch.tokens.shape[0])
    ]


def _score(parts: RLParts, params, micro_batches: Sequence[TokenBatch]) -> np.ndarray:
    """Returns the log-probabilities [M, B, T] of the action tokens; 0 elsewhere."""
    return np.stack(jax.device_get([parts.score(params, batch)[0] for batch in micro_batches]))


def _run_epochs(
    run: Run,
    parts: RLParts,
    state: TrainState,
    batches: Mapping[int, TokenBatch],
    step: int,
    grad_limit: float,
) -> tuple[TrainState, Metrics]:
    """Takes `epochs` passes over the mini-batches, one optimiser step each; averages their metrics.

    A mini-batch missing in `batches` still counts in the learning-rate schedules.
    """
    logged: list[Mapping[str, jax.Array]] = []
    limit = put_limit(grad_limit, parts.model.layout)
    total = parts.settings.learner.epochs * len(batches)
    run.begin("update", total)
    for epoch in range(parts.settings.learner.epochs):
        for number, batch in batches.items():
            run.console.phase("update", len(logged), total)
            padded = batching.pad_micro_batches(batch, parts.max_micro_batches)
            state, metrics = _optimiser_step(
                parts,
                state,
                put_batch(padded, parts.model.layout),
                limit,
                step=step,
                number=epoch * parts.settings.learner.mini_batches + number,
            )
            logged.append(metrics)
    host = jax.device_get(logged)
    means = {_metric_name(k): float(np.mean([m[k] for m in host])) for k in host[0]}
    if not parts.settings.needs_reference:
        means.pop("policy/kl_k3", None)  # without a reference this metric is meaningless
    for key in ("skipped", "nonfinite", "value_skipped"):
        if key in host[0]:
            means[_metric_name(key)] = float(sum(m[key] for m in host))
    if "policy/skipped" in means:
        means["policy/ratio_max"] = float(max(m["ratio_max"] for m in host))
        means["policy/grad_norm_max"] = float(max(m["grad_norm"] for m in host))
    means["policy/updates"] = len(host) - means.get("policy/skipped", len(host))
    return state, means


def _optimiser_step(
    parts: RLParts,
    state: TrainState,
    batch: TokenBatch,
    grad_limit: jax.Array,
    *,
    step: int,
    number: int,
) -> tuple[TrainState, Mapping[str, jax.Array]]:
    """Takes optimiser step `number` of a training step, for the policy and for a critic if there is
    one.
    """
    critic, settings, layout = parts.critic, parts.settings, parts.model.layout
    position = put_position(policy_updates_before(settings, step) + number, layout)
    if critic is None or critic.update is None:
        return parts.update(state, batch, grad_limit, position)
    critic_state, value_metrics = critic.update(
        state.critic, batch, put_position(updates_before(settings, step) + number, layout)
    )
    if step < critic.settings.warmup_steps:
        return dataclasses.replace(state, critic=critic_state), value_metrics
    state, metrics = parts.update(
        dataclasses.replace(state, critic=None), batch, grad_limit, position
    )
    return dataclasses.replace(state, critic=critic_state), metrics | value_metrics


def _metric_name(key: str) -> str:
    """Returns the metric name of a loss output: `value_loss` becomes `critic/loss`, `loss` becomes
    `policy/loss`.
    """
    name = key.removeprefix("value_")
    return f"critic/{name}" if name != key else f"policy/{name}"
