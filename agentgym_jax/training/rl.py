"""Online RL: collect, compare, score, update, hand over the weights; only the order of things."""

import time

from agentgym_jax.env_client.errors import ServerUnavailable
from agentgym_jax.learner import train_state
from agentgym_jax.learner.experience import Experience, make_experience
from agentgym_jax.learner.memory import Memory, horizon_statistics
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.sharding import reshard
from agentgym_jax.training import collection, held_out, learning, rollout_metrics, sft
from agentgym_jax.training.collection import Collected
from agentgym_jax.trajectory import to_record

Metrics = dict[str, float]


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
    collected = collection.collect(run, parts, memory, step)
    trajectories = collected.trajectories
    metrics = dict(collected.metrics)
    run.folder.write_trajectories(step + 1, [to_record(t) for t in trajectories])
    reference_logprobs = None
    if settings.adaptation.uses_kl_reward:
        reference_logprobs = learning.reference_logprobs(parts, reference, trajectories)
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
    metrics |= rollout_metrics.of_groups(experience, collected.tasks, tuple(settings.environments))
    state, learned = learning.learn(run, parts, state, reference, experience, step)
    memory, remembered = _remember(parts, memory, experience, collected)
    metrics |= learned | remembered | {"time/iteration_s": time.perf_counter() - started}
    return state, memory, metrics


def _remember(
    parts: RLParts,
    memory: Memory,
    experience: Experience,
    collected: Collected,
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
        horizons=horizon_statistics(experience.trajectories, collected.limits),
    )
    return memory, metrics


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
