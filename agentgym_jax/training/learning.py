"""What one collection teaches: scores under the present policy, then optimiser steps."""

import time
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from agentgym_jax import batch as batching
from agentgym_jax.batch import TokenBatch
from agentgym_jax.learner.experience import Experience, mini_batch_rows, pack_experience
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import put_batch, put_limit, put_position
from agentgym_jax.run.rl import RLParts, policy_updates_before, updates_before
from agentgym_jax.run.run import Run
from agentgym_jax.training import guards
from agentgym_jax.training.guards import Finding, History
from agentgym_jax.trajectory import Trajectory

Metrics = dict[str, float]


def learn(
    run: Run,
    parts: RLParts,
    state: TrainState,
    reference,
    experience: Experience,
    step: int,
    history: History,
    findings: Sequence[Finding],
) -> tuple[TrainState, Metrics, list[Finding]]:
    """All optimiser steps that one collection gives, as far as the guards let them.

    Args:
      run: shows the progress.
      parts: of the job.
      state: before the step.
      reference: weights the loss holds the policy near; None without.
      experience: of the step.
      step: steps done before it.
      history: what the guards remember of those.
      findings: of the guards on the episodes.

    Returns:
      The state, what is to be logged, and all findings on the step.
    """
    settings = parts.settings
    found = list(findings)
    lag = mean_lag(experience.trajectories, step)
    informative = int(experience.statistics.informative)
    needed = settings.learner.min_informative_groups if settings.algorithm.needs_groups else 0
    if informative < needed:
        run.console.note(
            f"step {step + 1}: no update, {informative} of {int(experience.statistics.groups)} "
            "groups are informative (learner.min_informative_groups="
            f"{settings.learner.min_informative_groups})"
        )
        return state, {"policy/lag": lag} | _NO_UPDATE, found
    metrics = {"policy/lag": lag}
    gaps: list[np.ndarray] = []
    started = time.perf_counter()
    batches: dict[int, TokenBatch] = {}
    parted = mini_batch_rows(
        settings.rollout.tasks_per_step,
        settings.rollout.group_size,
        settings.learner.mini_batches,
        step,
    )
    for number, rows in enumerate(parted):
        packed = pack_experience(
            experience,
            rows,
            aggregation_options=settings.aggregation_options,
            row_length=settings.learner.row_length,
            row_halvings=settings.learner.row_halvings,
            rows_multiple=settings.learner.micro_rows,
            keep_zero_advantage=settings.keeps_zero_advantage,
        )
        if packed is not None:
            is_known = experience.reference_logprobs is not None
            absent = None if is_known else reference
            batches[number] = scored_batch(parts, state, absent, packed, metrics, gaps)
    if not batches:
        run.console.note(f"step {step + 1}: no update, no episode has anything to train on")
        return state, {"policy/lag": lag} | _NO_UPDATE, found
    metrics |= _of_gaps(gaps, is_stale=lag > 0)
    metrics["time/score_s"] = time.perf_counter() - started
    found += guards.of_scores(settings.guards, metrics, settings.learner.max_logprob_gap)
    if guards.withholds(found):
        return state, metrics | _NO_UPDATE, found
    rate = parts.learning_rate(policy_updates_before(settings, step))
    started = time.perf_counter()
    limit = guards.withheld_above(settings.guards, history)
    state, updated = _update(run, parts, state, batches, step, limit)
    seconds = time.perf_counter() - started
    metrics |= updated
    metrics["time/update_s"] = seconds
    metrics["rate/train_tokens_per_s"] = metrics["batch/tokens"] * settings.learner.epochs / seconds
    metrics["policy/learning_rate"] = rate
    return state, metrics, found + guards.of_update(settings.guards, history, metrics)


_NO_UPDATE = {"policy/updates": 0.0, "policy/skipped": 1.0}


def mean_lag(trajectories: Sequence[Trajectory], step: int) -> float:
    """Steps by which the weights that sampled an action token are older than those after `step`."""
    versions = [t.policy_versions[t.action_mask] for t in trajectories]
    return float(step - np.concatenate(versions).mean()) if any(map(len, versions)) else 0.0


def whole_episodes(parts: RLParts, trajectories: Sequence[Trajectory]) -> TokenBatch:
    """Micro-batches of all tokens of some episodes, to be scored; no weights."""
    settings = parts.settings.learner
    # An episode without a turn has no such number, and its prompt may be longer than a row.
    ends = [len(t.tokens) if t.turns else 1 for t in trajectories]
    packed = batching.pack(
        [
            {"tokens": t.tokens[:end], "action_mask": t.action_mask[:end]}
            for t, end in zip(trajectories, ends, strict=True)
        ],
        row_length=batching.tightest_row_length(
            ends, settings.row_length, settings.micro_rows, settings.row_halvings
        ),
        rows_multiple=settings.micro_rows,
    )
    return batching.micro_batches(packed, settings.micro_rows)


def reference_logprobs(
    parts: RLParts, reference, trajectories: Sequence[Trajectory]
) -> list[np.ndarray]:
    """Log-probabilities of every token under the reference, by episode; 0 off the actions."""
    batch = whole_episodes(parts, trajectories)
    logprobs = _scores(parts, reference, on_device(parts, batch))
    return batching.unpack(logprobs, batch, len(trajectories))


def scored_batch(
    parts: RLParts,
    state: TrainState,
    reference,
    packed: TokenBatch,
    metrics: Metrics,
    gaps: list[np.ndarray],
) -> TokenBatch:
    """Micro-batches with old and reference log-probabilities; adds to `metrics` and `gaps`."""
    learner_settings = parts.settings.learner
    batch = batching.micro_batches(packed, learner_settings.micro_rows)
    placed = on_device(parts, batch)
    learner = _scores(parts, state.params, placed)
    gaps.append(np.abs(learner - batch.old_logprobs)[batch.action_mask])
    if parts.settings.ratio_against == "learner":
        sequence = np.where(batch.action_mask, batch.sequence_ids, -1)
        factor = parts.settings.correction(learner, batch.old_logprobs, sequence)
        batch = batch.replace(old_logprobs=learner, advantages=factor * batch.advantages)
    if reference is not None:
        batch = batch.replace(reference_logprobs=_scores(parts, reference, placed))
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


def _of_gaps(gaps: Sequence[np.ndarray], *, is_stale: bool) -> Metrics:
    """How far sampler and learner differ on the action tokens of a step.

    If the tokens were sampled by older weights (`is_stale`) the difference is also what the learner
    learned since: it is measured, but says nothing about the sampler.
    """
    gap = np.concatenate(gaps)
    kind = "stale_gap" if is_stale else "logprob_gap"
    return {f"policy/{kind}_mean": float(gap.mean()), f"policy/{kind}_max": float(gap.max())}


def on_device(parts: RLParts, batch: TokenBatch) -> list[TokenBatch]:
    """[M, B, T] on the host -> M micro-batches on the devices."""
    return [
        put_batch(jax.tree.map(lambda x, m=m: x[m], batch), parts.model.layout)
        for m in range(batch.tokens.shape[0])
    ]


def _scores(parts: RLParts, params, micro_batches: Sequence[TokenBatch]) -> np.ndarray:
    """Log-probabilities [M, B, T] of the action tokens; 0 elsewhere."""
    return np.stack(jax.device_get([parts.score(params, batch)[0] for batch in micro_batches]))


def _update(
    run: Run,
    parts: RLParts,
    state: TrainState,
    batches: Mapping[int, TokenBatch],
    step: int,
    grad_limit: float,
) -> tuple[TrainState, Metrics]:
    """`epochs` passes over the mini-batches, one optimiser step each; means of their metrics.

    A mini-batch without anything to train on is not in `batches`, but keeps its number.
    """
    logged: list[Mapping[str, jax.Array]] = []
    limit = put_limit(grad_limit, parts.model.layout)
    total = parts.settings.learner.epochs * len(batches)
    run.begin("update", total)
    for epoch in range(parts.settings.learner.epochs):
        for number, batch in batches.items():
            run.console.phase("update", len(logged), total)
            padded = batching.pad_micro_batches(batch, parts.max_micro_batches)
            state, metrics = _one_update(
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
        means.pop("policy/kl_k3", None)  # there is nothing it could be measured from
    for key in ("skipped", "nonfinite", "value_skipped"):
        if key in host[0]:
            means[_metric_name(key)] = float(sum(m[key] for m in host))
    if "policy/skipped" in means:
        means["policy/ratio_max"] = float(max(m["ratio_max"] for m in host))
        means["policy/grad_norm_max"] = float(max(m["grad_norm"] for m in host))
    means["policy/updates"] = len(host) - means.get("policy/skipped", len(host))
    return state, means


def _one_update(
    parts: RLParts,
    state: TrainState,
    batch: TokenBatch,
    grad_limit: jax.Array,
    *,
    step: int,
    number: int,
) -> tuple[TrainState, Mapping[str, jax.Array]]:
    """One optimiser step, the `number`-th of its step, of the policy and of its critic if any."""
    critic, settings, layout = parts.critic, parts.settings, parts.model.layout
    position = put_position(policy_updates_before(settings, step) + number, layout)
    if critic is None or critic.update is None:
        return parts.update(state, batch, grad_limit, position)
    of_critic, learned = critic.update(
        state.critic, batch, put_position(updates_before(settings, step) + number, layout)
    )
    if step < critic.settings.warmup_steps:
        return state.replace(critic=of_critic), learned
    state, metrics = parts.update(state.replace(critic=None), batch, grad_limit, position)
    return state.replace(critic=of_critic), metrics | learned


def _metric_name(key: str) -> str:
    """`value_loss` is `critic/loss`; everything else is the policy's."""
    name = key.removeprefix("value_")
    return f"critic/{name}" if name != key else f"policy/{name}"
