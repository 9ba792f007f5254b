"""Plays a fixed set of tasks with the sampler and scores the episodes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.evaluation.journal import Key, key_of
from agentgym_jax.evaluation.scores import EpisodeScore, from_trajectory
from agentgym_jax.evaluation.unplayable import PatientCollection, Plays
from agentgym_jax.rollout.collect import EpisodeRequest
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
    collector: Plays,
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
    pool: EnvPool,
    finished: Mapping[Key, Trajectory] | None = None,
    on_episode: Callable[[Trajectory], None] | None = None,
) -> Evaluation:
    """Plays all tasks, sampled and greedy in one collection, so that no row stays empty.

    What an episode draws depends on its key alone, so that leaving out those that are finished
    changes nothing in the others.

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
      pool: of the collector.
      finished: episodes that need not be played again, by what was asked for.
      on_episode: called with every episode as soon as it has ended.

    Raises:
      ServerUnavailable: a server plays nothing any more. Tasks that a server fails for good while it
        plays others are invalid episodes (unplayable.py).
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
    done = dict(finished or {})
    left = [request for request in requests if key_of(request) not in done]
    kept = len(requests) - len(left)

    def keep(trajectory: Trajectory) -> None:
        if on_episode is not None:
            on_episode(dataclasses.replace(trajectory, step=step))

    played = PatientCollection(
        collector,
        left,
        replacement_stride=len(modes),
        on_progress=lambda n, total, tokens: on_progress(kept + n, kept + total, tokens),
        should_stop=should_stop,
        on_episode=keep,
    ).run(pool, list(done.values()))
    done |= {key_of(request): t for request, t in zip(left, played, strict=True)}
    trajectories = [dataclasses.replace(done[key_of(r)], step=step) for r in requests]
    scores = [
        (request.sampling.temperature == 0.0, from_trajectory(trajectory, request.task.group))
        for request, trajectory in zip(requests, trajectories, strict=True)
    ]
    return Evaluation(
        sampled=[score for is_greedy, score in scores if not is_greedy],
        greedy=[score for is_greedy, score in scores if is_greedy],
        trajectories=trajectories,
    )
