"""Rollout of a training step: draws tasks and turn limits, and samples episodes.

With `rollout.max_off_policy_steps=1` a rollout runs in the background, during the previous update.
"""

import collections
import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agentgym_jax.algorithms.mixture_horizon import TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.jobs.rl.build import RLParts
from agentgym_jax.jobs.rl.metrics import (
    episode_metrics,
    horizon_metrics,
    judge_metrics,
    resampling_metrics,
)
from agentgym_jax.jobs.run import Run, StopRequested
from agentgym_jax.learner.controller_state import ControllerState
from agentgym_jax.learner.experience import make_experience
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.rollout.shared import collect_shared, is_stopped, share_statistics
from agentgym_jax.trajectory import Trajectory


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
    count, environments = settings.rollout.tasks_per_step, tuple(settings.environments)
    sampled = Groups(settings.rollout.group_size, [], [], [])
    is_informative = np.zeros(0, bool)
    statistics = CollectStatistics(collections.Counter())
    curriculum, tasks_taken = settings.controllers.curriculum, 0
    sampler.reset_statistics()
    for number in range(settings.rollout.max_rounds if settings.resamples else 1):
        candidates = parts.train_schedule.drawn(
            controllers.tasks_taken + tasks_taken, count * curriculum.candidates
        )
        tasks_taken += len(candidates)
        tasks = curriculum.choose(
            candidates,
            count,
            controllers.results,
            group_size=settings.rollout.group_size,
            key=(run.seed, step, number),
        )
        limits = settings.horizon.limits(tasks, step, controllers.horizons, seed=run.seed)
        trajectories, round_statistics = _rollout_round(
            run, parts, tasks, limits, step=step, number=number, should_stop=should_stop
        )
        sampled.tasks.extend(tasks)
        sampled.limits.extend(limits)
        sampled.trajectories.extend(trajectories)
        statistics += round_statistics
        if settings.resamples:
            experience = make_experience(trajectories, **settings.experience_options)
            is_informative = np.concatenate([is_informative, experience.informative_P])
        if is_informative.sum() >= count:
            break
    sampler_statistics = share_statistics(sampler.statistics)
    metrics = episode_metrics(
        sampled.trajectories, statistics, sampler_statistics, sampled.tasks, environments
    )
    metrics |= horizon_metrics(sampled.limits, environments)
    if settings.judge is not None:
        metrics |= judge_metrics(sampled.trajectories, statistics)
    if not settings.resamples:
        return Rollout(sampled, range(count), metrics, tasks_taken)
    kept = order_informative_first(is_informative)[:count]
    metrics |= resampling_metrics(
        is_informative, sampled.select(kept).trajectories, sampled.trajectories, count
    )
    return Rollout(sampled, kept, metrics, tasks_taken)


def order_informative_first(is_informative: Sequence[bool] | np.ndarray) -> tuple[int, ...]:
    """Returns the numbers of the informative groups, then of the others, in the order drawn."""
    return tuple(int(i) for i in np.argsort(~np.asarray(is_informative, bool), kind="stable"))


def _rollout_round(
    run: Run,
    parts: RLParts,
    tasks: Sequence[Task],
    limits: Sequence[TurnLimit],
    *,
    step: int,
    number: int,
    should_stop: Callable[[], bool],
) -> tuple[list[Trajectory], CollectStatistics]:
    """Samples the episodes of one round of a step; the first round has number 0."""
    rollout, sampling = parts.settings.rollout, parts.settings.sampling
    # A task drawn again in a later round needs unused sample numbers, also for its replacement
    # samples.
    first = number * rollout.group_size * (1 + rollout.max_replacements)
    requests = [
        EpisodeRequest(
            task=task,
            sample=first + sample,
            seed=run.seed,
            step=step,
            limits=EpisodeLimits(
                max_turns=limit.turns,
                max_tokens=sampling.max_tokens,
                max_parse_errors=rollout.max_parse_errors,
                keep_last_observation=rollout.truncation == "bootstrap",
            ),
            sampling=sampling,
        )
        for task, limit in zip(tasks, limits, strict=True)
        for sample in range(rollout.group_size)
    ]
    turns = sorted({limit.turns for limit in limits})
    phase = f"rollout, horizon {turns[0]}" + (f" to {turns[-1]}" if len(turns) > 1 else "")
    trajectories, statistics = collect_shared(
        parts.agent.training_collector,
        requests,
        replacement_stride=rollout.group_size,
        on_progress=run.progress(phase + (f", round {number + 1}" if number else "")),
        should_stop=should_stop,
    )
    if is_stopped(trajectories):
        raise StopRequested(f"stopped while collecting step {step + 1}")
    return trajectories, statistics


class RolloutPrefetcher:
    """Collects one rollout at a time; a rollout started by `begin` runs in the background.

    A rollout depends only on the sampler's weights, the controllers and the step, so its timing
    does not change the result. From `begin` to `wait` the rollout has exclusive use of sampler and
    environments. `wait` and `take` raise the error that ended the rollout.
    """

    def __init__(self, run: Run, parts: RLParts):
        """Stores the run and its components; no rollout starts."""
        self._run = run
        self._parts = parts
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="rollout")
        self._is_closed = threading.Event()
        self._pending: concurrent.futures.Future[Rollout] | None = None

    def begin(self, controllers: ControllerState, step: int) -> None:
        """Starts the rollout after `step` steps in the background."""
        if self._pending is not None:
            raise RuntimeError(f"the rollout before that of step {step + 1} was not taken")
        self._pending = self._thread.submit(
            collect_rollout, self._run, self._parts, controllers, step, self._should_stop
        )

    def wait(self) -> float:
        """Waits for a rollout in the background; returns the waiting time in seconds."""
        started = time.perf_counter()
        if self._pending is not None:
            self._pending.result()
        return time.perf_counter() - started

    def take(self, controllers: ControllerState, step: int) -> Rollout:
        """Returns the rollout after `step` steps, from the background or collected now."""
        if self._pending is None:
            return collect_rollout(self._run, self._parts, controllers, step, self._run.should_stop)
        pending, self._pending = self._pending, None
        return pending.result()

    def __enter__(self) -> "RolloutPrefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        """Aborts the rollout in the background, if there is one."""
        self._is_closed.set()
        self._thread.shutdown()

    def _should_stop(self) -> bool:
        return self._is_closed.is_set() or self._run.should_stop()
