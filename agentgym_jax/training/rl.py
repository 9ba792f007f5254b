"""Online RL: collect, compare, score, update, hand over the weights; only the order of things."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from agentgym_jax.env_client.errors import ServerUnavailable
from agentgym_jax.learner.experience import Experience, make_experience
from agentgym_jax.learner.memory import Memory, horizon_statistics
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.sharding import reshard
from agentgym_jax.training import critic, guards, held_out, learning, rollout_metrics, sft
from agentgym_jax.training.ahead import Collections
from agentgym_jax.training.collection import Collected
from agentgym_jax.training.guards import GuardStop, History
from agentgym_jax.trajectory import to_record

Metrics = dict[str, float]


@dataclasses.dataclass(frozen=True)
class _Standing:
    """Where a run stands: what a checkpoint holds.

    Attributes:
      step: steps done.
      state: after them.
      memory: after them.
      unlogged: metrics of the last step while its line is not written.
      behaviour: weights that play the next step, where they are older than those of the state.
      guarded: what the guards remember of the steps so far.
      stop: why a guard ends the run after the last step; None if it goes on.
    """

    step: int
    state: TrainState
    memory: Memory
    unlogged: Metrics | None = None
    behaviour: Any = None
    guarded: History = History()
    stop: str | None = None

    def measured(self, metrics: Metrics) -> "_Standing":
        """With more metrics of the last step."""
        return dataclasses.replace(self, unlogged=(self.unlogged or {}) | metrics)

    def save(self, run: Run) -> None:
        """Makes the newest checkpoint of it, unless it is that already."""
        run.save(
            self.step,
            self.state,
            self.unlogged,
            memory=self.memory.to_json(),
            guards=self.guarded.to_json(),
            behaviour=self.behaviour,
        )


def train(run: Run, parts: RLParts) -> None:
    """Trains until `run.total_steps` steps are done, from wherever the run folder stands.

    With `rollout.lag=1` the episodes of a step are played by the weights before the last update,
    in the background of that update. Evaluations and checkpoints wait for them.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable: an environment failed all calls for long. The others are not trained on
        alone: which tasks come would then depend on when it failed.
      GuardStop: a guard ends the run. In all cases the newest complete step is saved.
    """
    now, reference = _start(run, parts)
    with Collections(run, parts) as collections:
        try:
            if now.behaviour is not None and now.step < run.total_steps:
                collections.begin(now.memory, now.step)
                collections.wait()
            _give_weights(parts, now)
            # A line that was written after that state was saved is there already.
            if run.writer.last_step != now.step:
                now = _log(run, parts, now)
            while now.step < run.total_steps:
                started = time.perf_counter()
                now = dataclasses.replace(now, behaviour=None)  # what it played is taken or begun
                now = _learned(run, parts, collections, now, reference)
                if parts.settings.rollout.lag:
                    now = now.measured({"time/collect_wait_s": collections.wait()})
                now = now.measured({"time/iteration_s": time.perf_counter() - started})
                _give_weights(parts, now)
                now = _log(run, parts, now)
                if run.is_save_due(now.step) or now.stop is not None:
                    now.save(run)
                if now.stop is not None:
                    raise GuardStop(f"stopped after step {now.step}, which is saved: {now.stop}")
                if run.should_stop():
                    raise StopRequested(f"stopped after step {now.step}")
        except (StopRequested, ServerUnavailable):
            now.save(run)
            raise


def _start(run: Run, parts: RLParts) -> tuple[_Standing, Any]:
    """Where the run stands, and the reference weights if the loss needs them.

    The sampler gets the weights that play the next step, if they are not those of the state.
    """
    restored = run.restore(critic.abstract_state(parts))
    params = None
    if restored is None or parts.settings.needs_reference:
        params = _initial_params(run, parts)
    reference = params if parts.settings.needs_reference else None
    if restored is None:
        state = critic.create_state(parts, params)
        return _Standing(0, state, parts.settings.adaptation.first()), reference
    state, step, unlogged = restored
    behaviour = None
    if parts.settings.rollout.lag and step:
        behaviour = run.checkpoints.restore_behaviour(step, _abstract_behaviour(parts))
        parts.sampler.set_params(behaviour, version=step - 1)
    memory = Memory.from_json(run.restored_memory)
    history = History.from_json(run.restored_guards)
    return _Standing(step, state, memory, unlogged, behaviour, history), reference


def _abstract_behaviour(parts: RLParts):
    policy = parts.model.decode_policy
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, policy.dtype), policy.abstract_params()
    )


def _initial_params(run: Run, parts: RLParts):
    """The policy before RL: the model's weights, after the warm start if there is one."""
    params = parts.model.initial_params(run.seed)
    if parts.settings.sft is None:
        return params
    return sft.warm_start(run, parts, params)


def _give_weights(parts: RLParts, now: _Standing) -> None:
    """Reshards the learner's weights for decoding, without a host copy."""
    policy = parts.model.decode_policy
    params = reshard(now.state.params, parts.decode_shardings, policy.dtype)
    parts.sampler.set_params(params, version=now.step)


def _learned(
    run: Run, parts: RLParts, collections: Collections, now: _Standing, reference
) -> _Standing:
    """After one more step; with a lag the collection of the next one is going on."""
    settings, step, memory = parts.settings, now.step, now.memory
    collected = collections.take(memory, step)
    groups = collected.groups
    trajectories = groups.trajectories
    metrics = dict(collected.metrics)
    reference_logprobs = None
    if settings.adaptation.uses_kl_reward:
        reference_logprobs = learning.reference_logprobs(parts, reference, trajectories)
    experience = make_experience(
        trajectories,
        **settings.experience_options,
        expected_returns=memory.expected_returns,
        kl_coef=memory.kl_coef,
        reference_logprobs=reference_logprobs,
        values_after=critic.values_after(parts, now.state, trajectories),
    )
    run.folder.write_trajectories(step + 1, records(collected, experience))
    metrics |= critic.metrics_of(experience)
    metrics |= rollout_metrics.of_groups(experience, groups.tasks, tuple(settings.environments))
    # Nothing in it depends on the update, so a collection that does not wait for that has it all.
    memory, remembered = _remember(parts, memory, experience, collected)
    behaviour = parts.sampler.params if settings.rollout.lag else None
    if settings.rollout.lag and step + 1 < run.total_steps:
        collections.begin(memory, step + 1)
    found = guards.of_episodes(settings.guards, now.guarded, metrics)
    state, learned, found = learning.learn(
        run, parts, now.state, reference, experience, step, now.guarded, found
    )
    metrics |= learned | remembered | guards.metrics_of(found)
    run.warn(step + 1, guards.unspoken(found, now.guarded))
    return _Standing(
        step + 1,
        state,
        memory,
        metrics,
        behaviour,
        guards.remembered(settings.guards, now.guarded, metrics, found),
        guards.stop_of(found),
    )


def records(collected: Collected, experience: Experience) -> list[dict[str, Any]]:
    """Of all episodes of a step, with whether the step learned from them and with what advantages.

    Args:
      collected: the episodes.
      experience: of those that are kept, in the order of `collected.groups`.
    """
    played = collected.played
    size = len(played.trajectories) // len(played.tasks)
    rows = {i * size + k: n * size + k for n, i in enumerate(collected.kept) for k in range(size)}
    found = []
    for i, trajectory in enumerate(played.trajectories):
        record = to_record(trajectory) | {"discarded": i not in rows}
        if i in rows and trajectory.turns:  # one without a turn has no row that is as long as it
            record |= _shading(experience, rows[i], len(trajectory.tokens))
        found.append(record)
    return found


def _shading(experience: Experience, row: int, length: int) -> dict[str, list[float]]:
    """What the learner makes of each token of an episode, for whoever reads it."""
    values = {"advantages": experience.advantage_BT[row, :length]}
    if experience.reference_logprobs is not None:
        values["reference_logprobs"] = experience.reference_logprobs[row]
    return {name: np.round(x.astype(float), 6).tolist() for name, x in values.items()}


def _log(run: Run, parts: RLParts, now: _Standing) -> _Standing:
    """Writes the line of the last step, with an evaluation if one is due; step 0 may have none."""
    metrics = dict(now.unlogged or {})
    if parts.settings.evaluation.is_due(now.step, run.total_steps):
        metrics |= _evaluate(run, parts, now.step)
    if metrics:
        run.log_step(now.step, metrics)
    return dataclasses.replace(now, unlogged=None)


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
        baselines = list(memory.expected_returns.values())
        metrics["policy/expected_return"] = float(np.mean(baselines)) if baselines else 0.0
    memory = parts.settings.adaptation.next(
        memory,
        mean_returns=experience.mean_returns,
        divergence=divergence,
        horizons=horizon_statistics(collected.played.trajectories, collected.played.limits),
        tasks=len(collected.played.tasks),
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
