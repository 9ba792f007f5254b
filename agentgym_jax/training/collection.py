"""What one step of online RL collects: tasks, requests with their limits, finished episodes."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agentgym_jax.algorithms.mixture_horizon import TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.experience import make_experience
from agentgym_jax.learner.memory import Memory
from agentgym_jax.rollout.collect import CollectStatistics, EpisodeRequest
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.training import rollout_metrics
from agentgym_jax.trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Groups:
    """Tasks with their episodes.

    Attributes:
      tasks: in the order drawn.
      limits: turn limit of each.
      trajectories: R for each, task-major.
    """

    tasks: Sequence[Task]
    limits: Sequence[TurnLimit]
    trajectories: Sequence[Trajectory]

    def __add__(self, other: "Groups") -> "Groups":
        """These, then the others."""
        return Groups(
            (*self.tasks, *other.tasks),
            (*self.limits, *other.limits),
            (*self.trajectories, *other.trajectories),
        )

    def of(self, numbers: Sequence[int]) -> "Groups":
        """Some of them, in the order of `numbers`."""
        size = len(self.trajectories) // len(self.tasks)
        return Groups(
            tuple(self.tasks[i] for i in numbers),
            tuple(self.limits[i] for i in numbers),
            tuple(self.trajectories[i * size + k] for i in numbers for k in range(size)),
        )


@dataclasses.dataclass(frozen=True)
class Collected:
    """Episodes of one step.

    Attributes:
      played: all groups, in the order drawn.
      kept: numbers of the P that the step learns from; the others are discarded.
      metrics: of all episodes and of what they cost, by name.
    """

    played: Groups
    kept: Sequence[int]
    metrics: Mapping[str, float]

    @property
    def groups(self) -> Groups:
        """Those that the step learns from."""
        return self.played.of(self.kept)


def collect(
    run: Run, parts: RLParts, memory: Memory, step: int, should_stop: Callable[[], bool]
) -> Collected:
    """The episodes of a step, played by the sampler's present weights.

    With algorithm.zero_variance="resample" in rounds of P tasks, until P groups are informative
    (dynamic sampling of arXiv:2503.14476).

    Args:
      run: shows the progress.
      parts: of the job.
      memory: what the run remembers before the step.
      step: steps done before it.
      should_stop: polled.

    Raises:
      StopRequested: it was asked to stop.
      ServerUnavailable: an environment failed all calls for long.
    """
    settings, sampler = parts.settings, parts.sampler
    count, environments = settings.rollout.tasks_per_step, tuple(settings.environments)
    played, is_informative = Groups((), (), ()), np.zeros(0, bool)
    statistics = CollectStatistics(collections.Counter())
    sampler.reset_statistics()
    for number in range(settings.rollout.max_rounds if settings.resamples else 1):
        tasks = parts.train_schedule.drawn(memory.tasks_taken + len(played.tasks), count)
        limits = settings.horizon.limits(tasks, step, memory.horizons, seed=run.seed)
        trajectories, of_round = _played(run, parts, tasks, step, limits, number, should_stop)
        played += Groups(tasks, limits, trajectories)
        statistics += of_round
        if settings.resamples:
            experience = make_experience(trajectories, **settings.experience_options)
            of_groups = experience.informative_B.reshape(count, -1).any(axis=1)
            is_informative = np.concatenate([is_informative, of_groups])
        if is_informative.sum() >= count:
            break
    metrics = rollout_metrics.of(
        played.trajectories, statistics, sampler.statistics, played.tasks, environments
    )
    metrics |= rollout_metrics.of_limits(played.limits, environments)
    if not settings.resamples:
        return Collected(played, range(count), metrics)
    kept = informative_first(is_informative)[:count]
    metrics |= rollout_metrics.of_rounds(
        is_informative, played.of(kept).trajectories, played.trajectories, count
    )
    return Collected(played, kept, metrics)


def informative_first(is_informative: Sequence[bool] | np.ndarray) -> tuple[int, ...]:
    """Numbers of all groups: the informative ones in the order drawn, then the others in theirs."""
    return tuple(int(i) for i in np.argsort(~np.asarray(is_informative, bool), kind="stable"))


def _played(
    run: Run,
    parts: RLParts,
    tasks: Sequence[Task],
    step: int,
    limits: Sequence[TurnLimit],
    number: int,
    should_stop: Callable[[], bool],
) -> tuple[list[Trajectory], CollectStatistics]:
    """The episodes of one round of a step."""
    settings = parts.settings
    size = settings.rollout.group_size
    # A task that comes again in a later round of the step is sampled anew, replacements included.
    first = number * size * (1 + settings.rollout.max_replacements)
    shown = f"rollout, horizon {_shown(limits)}" + (f", round {number + 1}" if number else "")
    requests = [
        EpisodeRequest(
            task=task,
            sample=first + sample,
            seed=run.seed,
            step=step,
            limits=EpisodeLimits(
                max_turns=limit.turns,
                max_tokens=settings.sampling.max_tokens,
                max_invalid_actions=settings.rollout.max_invalid_actions,
                keep_last_observation=settings.rollout.truncation == "bootstrap",
            ),
            sampling=settings.sampling,
        )
        for task, limit in zip(tasks, limits, strict=True)
        for sample in range(size)
    ]
    collected = parts.collector.collect(
        requests,
        replacement_stride=size,
        on_progress=run.progress(shown),
        should_stop=should_stop,
    )
    if should_stop():
        raise StopRequested(f"stopped while collecting step {step + 1}")
    return collected


def _shown(limits: Sequence[TurnLimit]) -> str:
    """`10`, or `6 to 10` where tasks differ."""
    turns = sorted({limit.turns for limit in limits})
    return str(turns[0]) if len(turns) == 1 else f"{turns[0]} to {turns[-1]}"
