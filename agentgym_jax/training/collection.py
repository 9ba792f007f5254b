"""What one step of online RL collects: requests with their limits, then finished episodes."""

import dataclasses
from collections.abc import Mapping, Sequence

from agentgym_jax.algorithms.mixture_horizon import TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.memory import Memory
from agentgym_jax.rollout.collect import CollectStatistics, EpisodeRequest
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.training import rollout_metrics
from agentgym_jax.trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Collected:
    """Episodes of one step.

    Attributes:
      tasks: P of them.
      limits: turn limit of each.
      trajectories: P * R, task-major.
      metrics: of the episodes and of what they cost, by name.
    """

    tasks: Sequence[Task]
    limits: Sequence[TurnLimit]
    trajectories: Sequence[Trajectory]
    metrics: Mapping[str, float]


def collect(run: Run, parts: RLParts, memory: Memory, step: int) -> Collected:
    """The episodes of a step, played by the sampler's present weights.

    Args:
      run: shows the progress.
      parts: of the job.
      memory: what the run remembers before the step.
      step: steps done before it.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable: an environment failed all calls for long.
    """
    settings = parts.settings
    tasks = parts.train_schedule.at(step, settings.rollout.tasks_per_step)
    limits = settings.horizon.limits(tasks, step, memory.horizons, seed=run.seed)
    trajectories, statistics = _played(run, parts, tasks, step, limits)
    metrics = rollout_metrics.of(
        trajectories, statistics, parts.sampler.statistics, tasks, tuple(settings.environments)
    )
    metrics |= rollout_metrics.of_limits(limits, tuple(settings.environments))
    return Collected(tasks, limits, trajectories, metrics)


def _played(
    run: Run, parts: RLParts, tasks: Sequence[Task], step: int, limits: Sequence[TurnLimit]
) -> tuple[list[Trajectory], CollectStatistics]:
    settings = parts.settings
    requests = [
        EpisodeRequest(
            task=task,
            sample=sample,
            seed=run.seed,
            step=step,
            limits=EpisodeLimits(
                max_turns=limit.turns,
                max_tokens=settings.sampling.max_tokens,
                max_invalid_actions=settings.rollout.max_invalid_actions,
            ),
            sampling=settings.sampling,
        )
        for task, limit in zip(tasks, limits, strict=True)
        for sample in range(settings.rollout.group_size)
    ]
    parts.sampler.reset_statistics()
    collected = parts.collector.collect(
        requests,
        replacement_stride=settings.rollout.group_size,
        on_progress=run.progress(f"rollout, horizon {_shown(limits)}"),
        should_stop=run.should_stop,
    )
    if run.should_stop():
        raise StopRequested(f"stopped while collecting step {step + 1}")
    return collected


def _shown(limits: Sequence[TurnLimit]) -> str:
    """`10`, or `6 to 10` where tasks differ."""
    turns = sorted({limit.turns for limit in limits})
    return str(turns[0]) if len(turns) == 1 else f"{turns[0]} to {turns[-1]}"
