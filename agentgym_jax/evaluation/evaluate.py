"""Plays a fixed set of tasks with the sampler and scores the episodes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from agentgym_jax.data.tasks import Task
from agentgym_jax.evaluation.scores import EpisodeScore, from_trajectory
from agentgym_jax.rollout.collect import Collector, EpisodeRequest
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.run.settings import EvaluationSettings
from agentgym_jax.sampling.sampler import SamplingOptions
from agentgym_jax.trajectory import Trajectory

# Evaluation draws from keys of its own, the same at every step of a run: two evaluations differ
# by the policy, not by luck. Training steps count from 0, so no training key is this one.
_KEY_STEP = -1


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes and scores of one evaluation, sampled and greedy apart."""

    sampled: list[EpisodeScore]
    greedy: list[EpisodeScore]
    trajectories: list[Trajectory]


def evaluate(
    collector: Collector,
    tasks: Sequence[Task],
    settings: EvaluationSettings,
    *,
    seed: int,
    step: int,
    max_turns: Mapping[str, int],
    sampling: SamplingOptions,
    max_invalid_actions: int,
    on_progress: Callable[[int, int, int], None],
    should_stop: Callable[[], bool],
) -> Evaluation:
    """Plays all tasks, sampled and greedy in one collection, so that no row stays empty.

    Args:
      collector: with the weights to be evaluated in its sampler.
      tasks: held-out tasks.
      settings: how often to play them.
      seed: of the draws.
      step: steps done, for the record.
      max_turns: of an episode, by environment.
      sampling: of the sampled episodes; the greedy ones share its limits.
      max_invalid_actions: as in training.
      on_progress: see `Collector.collect`.
      should_stop: see `Collector.collect`.
    """
    limits = {
        name: EpisodeLimits(
            max_turns=turns,
            max_tokens=sampling.max_tokens,
            max_invalid_actions=max_invalid_actions,
        )
        for name, turns in max_turns.items()
    }
    greedy = dataclasses.replace(sampling, temperature=0.0, top_k=0, top_p=1.0)
    modes = [(sample, sampling) for sample in range(settings.samples)]
    modes += [(settings.samples, greedy)] if settings.greedy else []
    requests = [
        EpisodeRequest(
            task=task,
            sample=sample,
            seed=seed,
            step=_KEY_STEP,
            limits=limits[task.environment],
            sampling=options,
        )
        for task in tasks
        for sample, options in modes
    ]
    trajectories, _ = collector.collect(
        requests,
        replacement_stride=len(modes),
        on_progress=on_progress,
        should_stop=should_stop,
    )
    trajectories = [dataclasses.replace(t, step=step) for t in trajectories]
    scores = [
        (request.sampling.temperature == 0.0, from_trajectory(trajectory, request.task.group))
        for request, trajectory in zip(requests, trajectories, strict=True)
    ]
    return Evaluation(
        sampled=[score for is_greedy, score in scores if not is_greedy],
        greedy=[score for is_greedy, score in scores if is_greedy],
        trajectories=trajectories,
    )
