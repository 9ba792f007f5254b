"""What one step of online RL collects: requests with their limits, then finished episodes."""

import dataclasses
from collections.abc import Mapping, Sequence

from agentgym_jax.data.tasks import Task
from agentgym_jax.learner.memory import Memory
from agentgym_jax.metrics import of_environment
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
      turns: turn limit by environment.
      trajectories: P * R, task-major.
      metrics: of the episodes and of what they cost, by name.
    """

    tasks: Sequence[Task]
    turns: Mapping[str, int]
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
    turns = settings.horizon(step, memory.horizons)
    tasks = parts.train_schedule.at(step, settings.rollout.tasks_per_step)
    trajectories, statistics = _played(run, parts, tasks, step, turns)
    metrics = rollout_metrics.of(
        trajectories, statistics, parts.sampler.statistics, tasks, tuple(settings.environments)
    )
    return Collected(tasks, turns, trajectories, metrics | _horizon_metrics(turns))


def _played(
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


def _horizon_metrics(turns: Mapping[str, int]) -> dict[str, float]:
    """The largest turn limit and, if there are several environments, that of each."""
    metrics = {"horizon/turns": float(max(turns.values()))}
    if len(turns) > 1:
        metrics |= {of_environment("horizon/turns", name): float(n) for name, n in turns.items()}
    return metrics
