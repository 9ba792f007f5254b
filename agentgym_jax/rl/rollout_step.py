"""Rollout of a training step: draws tasks and turn limits, and samples episodes."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agentgym_jax.algorithms.mixture_horizon import TurnLimit
from agentgym_jax.data.tasks import Task, count_earlier
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.jobs.run import Run, StopRequested
from agentgym_jax.learner.controller_state import ControllerState
from agentgym_jax.learner.experience import make_experience
from agentgym_jax.rl.build import RLParts
from agentgym_jax.rl.rl_metrics import (
    episode_metrics,
    horizon_metrics,
    judge_metrics,
    resampling_metrics,
)
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.rollout.shared import collect_shared, is_stopped, share_statistics


@dataclasses.dataclass(frozen=True)
class Groups:
    """Groups of episodes; a group has the episodes of one task.

    Attributes:
      size: Number of episodes per task (R).
      tasks: Tasks in the order drawn.
      limits: Turn limit of each task.
      trajectories: R episodes per task, task-major.
    """

    size: int
    tasks: list[Task]
    limits: list[TurnLimit]
    trajectories: list[Trajectory]

    def select(self, numbers: Sequence[int]) -> "Groups":
        """Returns the groups with these numbers, in the order of `numbers`."""
        return Groups(
            self.size,
            [self.tasks[i] for i in numbers],
            [self.limits[i] for i in numbers],
            [self.trajectories[i * self.size + k] for i in numbers for k in range(self.size)],
        )


@dataclasses.dataclass(frozen=True)
class Rollout:
    """Episodes of one step.

    Attributes:
      sampled: All sampled groups, in the order drawn.
      kept: Numbers of the P groups that the update uses; other groups are discarded.
      metrics: Metrics of all episodes and of the sampling cost, by name.
      tasks_taken: Number of tasks taken from the schedule; a curriculum leaves some of them out.
    """

    sampled: Groups
    kept: Sequence[int]
    metrics: Mapping[str, float]
    tasks_taken: int

    @property
    def groups(self) -> Groups:
        """Returns the groups that the update uses."""
        return self.sampled.select(self.kept)


def collect_rollout(
    run: Run,
    parts: RLParts,
    controllers: ControllerState,
    step: int,
    should_stop: Callable[[], bool],
) -> Rollout:
    """Samples the episodes of a step with the current weights of the sampler.

    With `algorithm.zero_variance="resample"` it samples rounds of P tasks until P groups are
    informative (dynamic sampling of arXiv:2503.14476) or `max_rounds` is reached.
    """
    settings, sampler = parts.settings, parts.agent.sampler
    count = settings.rollout.tasks_per_step
    sampled = Groups(settings.rollout.group_size, [], [], [])
    is_informative = np.zeros(0, bool)
    statistics = CollectStatistics(collections.Counter())
    tasks_taken = 0
    sampler.reset_statistics()
    for number in range(settings.rollout.max_rounds if settings.resamples else 1):
        drawn = draw_round(run, parts, controllers, step, tasks_taken, number=number)
        tasks_taken += drawn.tasks_taken
        trajectories, round_statistics = _collect_round(
            run, parts, drawn, step=step, number=number, should_stop=should_stop
        )
        sampled.tasks.extend(drawn.tasks)
        sampled.limits.extend(drawn.limits)
        sampled.trajectories.extend(trajectories)
        statistics += round_statistics
        if settings.resamples:
            experience = make_experience(trajectories, **settings.experience_options)
            is_informative = np.concatenate([is_informative, experience.informative_P])
        if is_informative.sum() >= count:
            break
    metrics = rollout_metrics(parts, sampled, statistics)
    if not settings.resamples:
        return Rollout(sampled, range(count), metrics, tasks_taken)
    kept = order_informative_first(is_informative)[:count]
    metrics |= resampling_metrics(
        is_informative, sampled.select(kept).trajectories, sampled.trajectories, count
    )
    return Rollout(sampled, kept, metrics, tasks_taken)


def rollout_metrics(
    parts: RLParts, sampled: Groups, statistics: CollectStatistics
) -> dict[str, float]:
    """Returns the metrics of the episodes of a step, and of the sampler since its last reset."""
    settings = parts.settings
    environments = tuple(settings.environments)
    sampler_statistics = share_statistics(parts.agent.sampler.statistics)
    metrics = episode_metrics(
        sampled.trajectories, statistics, sampler_statistics, sampled.tasks, environments
    )
    metrics |= horizon_metrics(sampled.limits, environments)
    if settings.judge is not None:
        metrics |= judge_metrics(sampled.trajectories, statistics)
    return metrics


def order_informative_first(is_informative: Sequence[bool] | np.ndarray) -> tuple[int, ...]:
    """Returns the numbers of the informative groups, then of the others, in the order drawn."""
    return tuple(int(i) for i in np.argsort(~np.asarray(is_informative, bool), kind="stable"))


@dataclasses.dataclass(frozen=True)
class DrawnRound:
    """Tasks of one round of a step, and the requests for their episodes; fields as of `Groups`.

    `tasks_taken` is the number of tasks taken from the schedule; a curriculum leaves some of them out.
    """

    tasks: list[Task]
    limits: list[TurnLimit]
    requests: list[EpisodeRequest]
    tasks_taken: int


def draw_round(
    run: Run,
    parts: RLParts,
    controllers: ControllerState,
    step: int,
    tasks_taken: int,
    *,
    number: int = 0,
) -> DrawnRound:
    """Draws the tasks and turn limits of round `number` of a step.

    `tasks_taken` is the number of tasks taken from the schedule since `controllers`.
    """
    settings = parts.settings
    rollout, curriculum = settings.rollout, settings.controllers.curriculum
    candidates = parts.train_schedule.drawn(
        controllers.tasks_taken + tasks_taken, rollout.tasks_per_step * curriculum.candidates
    )
    tasks = curriculum.choose(
        candidates,
        rollout.tasks_per_step,
        controllers.results,
        group_size=rollout.group_size,
        key=(run.seed, step, number),
    )
    limits = settings.horizon.limits(tasks, step, controllers.horizons, seed=run.seed)
    # A task drawn again, in this round or in a later one, needs unused sample numbers, also for its
    # replacement samples.
    span = rollout.group_size * (1 + rollout.max_replacements)
    rounds = rollout.max_rounds if settings.resamples else 1
    requests = [
        EpisodeRequest(
            task=task,
            sample=(number + earlier * rounds) * span + sample,
            seed=run.seed,
            step=step,
            limits=EpisodeLimits(
                max_turns=limit.turns,
                max_tokens=settings.sampling.max_tokens,
                max_parse_errors=rollout.max_parse_errors,
                keep_last_observation=rollout.truncation == "bootstrap",
            ),
            sampling=settings.sampling,
        )
        for task, limit, earlier in zip(tasks, limits, count_earlier(tasks), strict=True)
        for sample in range(rollout.group_size)
    ]
    return DrawnRound(tasks, limits, requests, len(candidates))


def _collect_round(
    run: Run,
    parts: RLParts,
    drawn: DrawnRound,
    *,
    step: int,
    number: int,
    should_stop: Callable[[], bool],
) -> tuple[list[Trajectory], CollectStatistics]:
    """Samples the episodes of one round of a step; the first round has number 0."""
    turns = sorted({limit.turns for limit in drawn.limits})
    phase = f"rollout, horizon {turns[0]}" + (f" to {turns[-1]}" if len(turns) > 1 else "")
    trajectories, statistics = collect_shared(
        parts.agent.collector,
        drawn.requests,
        replacement_stride=parts.settings.rollout.group_size,
        on_progress=run.progress(phase + (f", round {number + 1}" if number else "")),
        should_stop=should_stop,
        score=None if parts.agent.judge is None else parts.agent.judge.score_rollout,
    )
    if is_stopped(trajectories):
        raise StopRequested(f"stopped while collecting step {step + 1}")
    return trajectories, statistics
