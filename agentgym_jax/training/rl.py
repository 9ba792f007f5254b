"""Online RL: collect, compare, score, update, hand over the weights; only the order of things."""

import time
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from absl import logging

from agentgym_jax import batch as batching
from agentgym_jax.batch import TokenBatch
from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.errors import ServerUnavailable
from agentgym_jax.learner import train_state
from agentgym_jax.learner.experience import (
    Experience,
    make_experience,
    mini_batch_rows,
    pack_experience,
)
from agentgym_jax.learner.memory import Memory, horizon_statistics
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import put_batch
from agentgym_jax.metrics import of_environment
from agentgym_jax.rollout.collect import CollectStatistics, EpisodeRequest
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.sharding import reshard
from agentgym_jax.training import held_out, rollout_metrics, sft
from agentgym_jax.trajectory import Trajectory, to_record

Metrics = dict[str, float]


class LogprobGapError(RuntimeError):
    """Sampling and training do not compute the same policy."""


def train(run: Run, parts: RLParts) -> None:
    """Trains until `run.total_steps` steps are done, from wherever the run folder stands.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable: an environment failed all calls for long. The others are not trained on
        alone: which tasks come would then depend on when it failed. In both cases the newest
        complete step is saved.
    """
    state, step, reference, unlogged = _start(run, parts)
    memory = _memory(run, parts)
    try:
        if step == 0 and parts.settings.evaluation.is_due(0, run.total_steps):
            run.log_step(0, _evaluate(run, parts, 0))
        elif unlogged is not None:
            run.log_step(step, unlogged | _evaluate(run, parts, step))
            unlogged = None
        run.save(step, state, memory=memory.to_json())
        while step < run.total_steps:
            state, memory, metrics = _iterate(run, parts, state, memory, reference, step)
            step += 1
            _give_weights(parts, state, step)
            if parts.settings.evaluation.is_due(step, run.total_steps):
                unlogged = metrics
                metrics |= _evaluate(run, parts, step)
            unlogged = None
            run.log_step(step, metrics)
            if run.is_save_due(step):
                run.save(step, state, memory=memory.to_json())
            if run.should_stop():
                raise StopRequested(f"stopped after step {step}")
    except (StopRequested, ServerUnavailable):
        run.save(step, state, unlogged, memory=memory.to_json())
        raise


def _start(run: Run, parts: RLParts) -> tuple[TrainState, int, object, Metrics | None]:
    """State, steps done, reference weights if the loss needs them, and metrics of the last step
    if the run was stopped during its evaluation, before they could be logged."""
    model = parts.model
    restored = run.restore(train_state.abstract_state(model.policy, parts.optimizer, model.layout))
    params = None
    if restored is None or parts.settings.needs_reference:
        params = _initial_params(run, parts)
    if restored is None:
        state = train_state.create(model.policy, parts.optimizer, params, model.layout)
        step, unlogged = 0, None
    else:
        state, step, unlogged = restored
    _give_weights(parts, state, step)
    return state, step, params if parts.settings.needs_reference else None, unlogged


def _memory(run: Run, parts: RLParts) -> Memory:
    """What the run remembers beside its weights, wherever it stands."""
    if run.restored_memory is None:
        return parts.settings.adaptation.first()
    return Memory.from_json(run.restored_memory)


def _initial_params(run: Run, parts: RLParts):
    """The policy before RL: the model's weights, after the warm start if there is one."""
    params = parts.model.initial_params(run.seed)
    if parts.settings.sft is None:
        return params
    return sft.warm_start(run, parts, params)


def _give_weights(parts: RLParts, state: TrainState, step: int) -> None:
    """Reshards the learner's weights for decoding, without a host copy."""
    policy = parts.model.decode_policy
    params = reshard(state.params, parts.decode_shardings, policy.dtype)
    parts.sampler.set_params(params, version=step)


def _iterate(
    run: Run, parts: RLParts, state: TrainState, memory: Memory, reference, step: int
) -> tuple[TrainState, Memory, Metrics]:
    """One step of the run: `step` steps are done before it."""
    started = time.perf_counter()
    settings = parts.settings
    turns = settings.horizon(step, memory.horizons)
    environments = tuple(settings.environments)
    tasks = parts.train_schedule.at(step, settings.rollout.tasks_per_step)
    trajectories, statistics = _collect(run, parts, tasks, step, turns)
    metrics = rollout_metrics.of(
        trajectories, statistics, parts.sampler.statistics, tasks, environments
    )
    metrics |= _horizon_metrics(turns)
    run.folder.write_trajectories(step + 1, [to_record(t) for t in trajectories])
    reference_logprobs = None
    if settings.adaptation.uses_kl_reward:
        reference_logprobs = _reference_logprobs(parts, reference, trajectories)
    experience = make_experience(
        trajectories,
        algorithm=settings.algorithm,
        group_size=settings.rollout.group_size,
        max_tokens=settings.sampling.max_tokens,
        reward=settings.rollout.reward,
        wasted_turn_penalty=settings.rollout.wasted_turn_penalty,
        truncation=settings.rollout.truncation,
        advantage_options=settings.advantage_options,
        unreadable_turn_penalty=settings.rollout.unreadable_turn_penalty,
        overlong=settings.rollout.overlong,
        zero_variance=settings.zero_variance,
        expected_return=memory.expected_return or 0.0,
        kl_coef=memory.kl_coef,
        reference_logprobs=reference_logprobs,
    )
    metrics |= rollout_metrics.of_groups(experience, tasks, environments)
    state, learned = _learn(run, parts, state, reference, experience, step)
    memory, remembered = _remember(parts, memory, experience, tasks, turns)
    metrics |= learned | remembered | {"time/iteration_s": time.perf_counter() - started}
    return state, memory, metrics


def _reference_logprobs(
    parts: RLParts, reference, trajectories: Sequence[Trajectory]
) -> list[np.ndarray]:
    """Log-probabilities of every token under the reference, by episode; 0 off the actions."""
    settings = parts.settings.learner
    # An episode without a turn has no such number, and its prompt may be longer than a row.
    ends = [len(t.tokens) if t.turns else 1 for t in trajectories]
    packed = batching.pack(
        [
            {"tokens": t.tokens[:end], "action_mask": t.action_mask[:end]}
            for t, end in zip(trajectories, ends, strict=True)
        ],
        row_length=settings.row_length,
        rows_multiple=settings.micro_rows,
    )
    batch = batching.micro_batches(packed, settings.micro_rows)
    logprobs = _scores(parts, reference, _on_device(parts, batch))
    return batching.unpack(logprobs, batch, len(trajectories))


def _remember(
    parts: RLParts,
    memory: Memory,
    experience: Experience,
    tasks: Sequence[Task],
    turns: Mapping[str, int],
) -> tuple[Memory, Metrics]:
    """The memory after a step, and what of it belongs into the log."""
    metrics: Metrics = {}
    divergence = experience.reference_divergence
    if divergence is not None:
        metrics = {"policy/kl_reward": divergence, "policy/kl_reward_coef": memory.kl_coef}
    if parts.settings.algorithm.takes_baseline:
        metrics["policy/expected_return"] = memory.expected_return or 0.0
    memory = parts.settings.adaptation.next(
        memory,
        mean_return=experience.mean_return,
        divergence=divergence,
        horizons=horizon_statistics(
            experience.trajectories, [task.environment for task in tasks], turns
        ),
    )
    return memory, metrics


def _horizon_metrics(turns: Mapping[str, int]) -> Metrics:
    """The largest turn limit and, if there are several environments, that of each."""
    metrics = {"horizon/turns": float(max(turns.values()))}
    if len(turns) > 1:
        metrics |= {of_environment("horizon/turns", name): float(n) for name, n in turns.items()}
    return metrics


def _collect(
    run: Run, parts: RLParts, tasks: Sequence[Task], step: int, turns: Mapping[str, int]
) -> tuple[list[Trajectory], CollectStatistics]:
    settings = parts.settings
    limits = {
        name: EpisodeLimits(
            max_turns=limit,
            max_tokens=settings.sampling.max_tokens,
            max_invalid_actions=settings.rollout.max_invalid_actions,
        )
        for name, limit in turns.items()
    }
    requests = [
        EpisodeRequest(
            task=task,
            sample=sample,
            seed=run.seed,
            step=step,
            limits=limits[task.environment],
            sampling=settings.sampling,
        )
        for task in tasks
        for sample in range(settings.rollout.group_size)
    ]
    parts.sampler.reset_statistics()
    collected = parts.collector.collect(
        requests,
        replacement_stride=settings.rollout.group_size,
        on_progress=run.progress(f"rollout, horizon {_shown(turns)}"),
        should_stop=run.should_stop,
    )
    if run.should_stop():
        raise StopRequested(f"stopped while collecting step {step + 1}")
    return collected


def _shown(turns: Mapping[str, int]) -> str:
    """`10`, or `6 to 10` where environments differ."""
    low, high = min(turns.values()), max(turns.values())
    return str(low) if low == high else f"{low} to {high}"


def _learn(
    run: Run, parts: RLParts, state: TrainState, reference, experience: Experience, step: int
) -> tuple[TrainState, Metrics]:
    """All optimiser steps that one collection gives."""
    settings = parts.settings
    informative = int(experience.statistics.informative)
    needed = settings.learner.min_informative_groups if settings.algorithm.needs_groups else 0
    if informative < needed:
        run.console.note(
            f"step {step + 1}: no update, {informative} of {int(experience.statistics.groups)} "
            "groups have variance (learner.min_informative_groups="
            f"{settings.learner.min_informative_groups})"
        )
        return state, {"policy/updates": 0.0, "policy/skipped": 1.0}
    metrics: Metrics = {}
    started = time.perf_counter()
    batches = []
    for rows in mini_batch_rows(
        settings.rollout.tasks_per_step,
        settings.rollout.group_size,
        settings.learner.mini_batches,
        step,
    ):
        packed = pack_experience(
            experience,
            rows,
            aggregation_options=settings.aggregation_options,
            row_length=settings.learner.row_length,
            rows_multiple=settings.learner.micro_rows,
            keep_zero_advantage=settings.keeps_zero_advantage,
        )
        if packed is not None:
            is_known = experience.reference_logprobs is not None
            batches.append(_scored(parts, state, None if is_known else reference, packed, metrics))
    if not batches:
        run.console.note(f"step {step + 1}: no update, no episode has anything to train on")
        return state, {"policy/updates": 0.0, "policy/skipped": 1.0}
    metrics["time/score_s"] = time.perf_counter() - started
    rate = parts.learning_rate(int(state.step))
    started = time.perf_counter()
    state, updated = _update(run, parts, state, batches)
    seconds = time.perf_counter() - started
    metrics |= updated
    metrics["time/update_s"] = seconds
    metrics["rate/train_tokens_per_s"] = metrics["batch/tokens"] * settings.learner.epochs / seconds
    metrics["policy/learning_rate"] = rate
    return state, metrics


def _scored(
    parts: RLParts, state: TrainState, reference, packed: TokenBatch, metrics: Metrics
) -> TokenBatch:
    """Micro-batches with old and reference log-probabilities; adds to `metrics`.

    Raises:
      LogprobGapError: sampler and learner disagree by more than learner.max_logprob_gap.
    """
    learner_settings = parts.settings.learner
    batch = batching.micro_batches(packed, learner_settings.micro_rows)
    on_device = _on_device(parts, batch)
    learner = _scores(parts, state.params, on_device)
    gap = np.abs(learner - batch.old_logprobs)[batch.action_mask]
    _check_gap(gap, learner_settings.max_logprob_gap)
    if learner_settings.ratio_against == "learner":
        sequence = np.where(batch.action_mask, batch.sequence_ids, -1)
        factor = parts.settings.correction(learner, batch.old_logprobs, sequence)
        batch = batch.replace(old_logprobs=learner, advantages=factor * batch.advantages)
    if reference is not None:
        batch = batch.replace(reference_logprobs=_scores(parts, reference, on_device))
    counts = {
        "rows": packed.tokens.shape[0],
        "sequences": packed.sequence_ids.max() + 1,
        "tokens": np.sum(packed.segment_ids > 0),
        "action_tokens": packed.action_mask.sum(),
    }
    for name, count in counts.items():
        metrics[f"batch/{name}"] = metrics.get(f"batch/{name}", 0.0) + float(count)
    metrics["batch/padding_share"] = batching.padding_share(packed)
    metrics["policy/logprob_gap_mean"] = float(gap.mean())
    metrics["policy/logprob_gap_max"] = float(gap.max())
    return batch


def _on_device(parts: RLParts, batch: TokenBatch) -> list[TokenBatch]:
    """[M, B, T] on the host -> M micro-batches on the devices."""
    return [
        put_batch(jax.tree.map(lambda x, m=m: x[m], batch), parts.model.layout)
        for m in range(batch.tokens.shape[0])
    ]


def _scores(parts: RLParts, params, micro_batches: Sequence[TokenBatch]) -> np.ndarray:
    """Log-probabilities [M, B, T] of the action tokens; 0 elsewhere."""
    return np.stack(jax.device_get([parts.score(params, batch)[0] for batch in micro_batches]))


def _check_gap(gap: np.ndarray, limit: float) -> None:
    if gap.mean() > limit:
        raise LogprobGapError(
            "the sampler's and the learner's log-probabilities of the same tokens differ by "
            f"{gap.mean():.5f} nats on average (largest {gap.max():.5f}, {gap.size} tokens), more "
            f"than learner.max_logprob_gap={limit}. Sampling and training do not see the same "
            "policy: check dtypes and temperature, or raise the limit."
        )


def _update(
    run: Run, parts: RLParts, state: TrainState, batches: Sequence[TokenBatch]
) -> tuple[TrainState, Metrics]:
    """`epochs` passes over the mini-batches, one optimiser step each; means of their metrics."""
    logged: list[Mapping[str, jax.Array]] = []
    total = parts.settings.learner.epochs * len(batches)
    for _ in range(parts.settings.learner.epochs):
        for batch in batches:
            run.console.phase("update", len(logged), total)
            padded = batching.pad_micro_batches(batch, parts.max_micro_batches)
            state, metrics = parts.update(state, put_batch(padded, parts.model.layout))
            logged.append(metrics)
    host = jax.device_get(logged)
    means = {f"policy/{k}": float(np.mean([m[k] for m in host])) for k in host[0]}
    if not parts.settings.needs_reference:
        del means["policy/kl_k3"]  # there is nothing it could be measured from
    means["policy/ratio_max"] = float(max(m["ratio_max"] for m in host))
    means["policy/skipped"] = float(sum(m["skipped"] for m in host))
    means["policy/updates"] = len(host) - means["policy/skipped"]
    if means["policy/skipped"]:
        logging.warning("an update was skipped: its loss or gradient was not finite")
    return state, means


def _evaluate(run: Run, parts: RLParts, step: int) -> Metrics:
    """Held-out success, sampled and greedy; none of it depends on the draws of training."""
    settings = parts.settings
    return held_out.evaluate_step(
        run,
        parts.collector,
        parts.environments,
        settings.evaluation,
        step=step,
        max_turns=settings.evaluation_turns,
        sampling=settings.sampling,
        max_invalid_actions=settings.rollout.max_invalid_actions,
    )
