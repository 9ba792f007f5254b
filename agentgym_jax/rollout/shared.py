"""Joint rollout of all processes of a run.

Each process collects the episodes of its own tasks with its own sampler and servers. Afterwards all
processes have all episodes, so that advantages, metrics and decisions are the same everywhere.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome, Trajectory, from_message, to_message
from agentgym_jax.mesh import processes
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics, EpisodeCollector
from agentgym_jax.rollout.retries import check_collected
from agentgym_jax.sampling.sampler_statistics import SamplerStatistics

_CHANNEL = "episodes"


def own_places(tasks: Sequence[Task]) -> list[int]:
    """Returns the places of this process's tasks; all places of a task have the same process."""
    numbers: dict[Task, int] = {}
    for task in tasks:
        numbers.setdefault(task, len(numbers))
    return [i for i, t in enumerate(tasks) if numbers[t] % processes.count() == processes.index()]


def collect_shared(
    collector: EpisodeCollector, requests: Sequence[EpisodeRequest], **options: Any
) -> tuple[list[Trajectory], CollectStatistics]:
    """Returns the result of `collector.collect` for the requests of all processes.

    All processes call this function with the same arguments. Seconds in the statistics are those of
    the slowest process.
    """
    if processes.count() == 1:
        return collector.collect(requests, **options)
    places = own_places([request.task for request in requests])
    own = [requests[i] for i in places]
    found = gather_episodes(lambda: collector.collect(own, is_part=True, **options))
    # Each process has its episodes in the order of the requests.
    rests = [iter(trajectories) for trajectories, _ in found]
    numbers: dict[Task, int] = {}
    for request in requests:
        numbers.setdefault(request.task, len(numbers))
    merged = [next(rests[numbers[request.task] % len(rests)]) for request in requests]
    check_collected(requests, merged)
    return merged, _merge([statistics for _, statistics in found])


def gather_episodes(
    collect: Callable[[], tuple[Sequence[Trajectory], CollectStatistics]],
) -> list[tuple[list[Trajectory], CollectStatistics]]:
    """Returns the results of `collect` of all processes, by process number.

    Raises:
      ServerUnavailable: An environment of any process was unavailable for too long.
    """
    trajectories: Sequence[Trajectory] = ()
    statistics, error = CollectStatistics(collections.Counter()), None
    try:
        trajectories, statistics = collect()
    except ServerUnavailable as unavailable:
        if processes.count() == 1:
            raise
        error = unavailable
    message = {
        "episodes": [to_message(t) for t in trajectories],
        "statistics": vars(statistics)
        | {"env_errors": dict(statistics.env_errors), "judge": dict(statistics.judge)},
        "error": None if error is None else [str(error.cause), error.message],
    }
    answers = processes.gather(message, _CHANNEL)
    if error is not None:
        raise error
    for i, answer in enumerate(answers):
        if answer["error"] is not None:
            cause, text = answer["error"]
            raise ServerUnavailable(EnvCause(cause), f"process {i}: {text}")
    return [
        (
            [from_message(m) for m in answer["episodes"]],
            CollectStatistics(
                **{
                    **answer["statistics"],
                    "env_errors": collections.Counter(answer["statistics"]["env_errors"]),
                    "judge": collections.Counter(answer["statistics"]["judge"]),
                }
            ),
        )
        for answer in answers
    ]


def share_statistics(own: SamplerStatistics) -> SamplerStatistics:
    """Returns the sum of the sampler statistics of all processes; the maximum of seconds."""
    answers = processes.gather(dataclasses.asdict(own), _CHANNEL)
    return _merge([SamplerStatistics(**answer) for answer in answers])


def is_stopped(trajectories: Sequence[Trajectory]) -> bool:
    """Returns True if a request to stop ended the collection of these episodes."""
    return any(t.outcome is Outcome.ABORTED for t in trajectories)


def _merge(parts: Sequence[Any]) -> Any:
    """Sums statistics of processes that ran at the same time; seconds are not summed."""
    merged = {}
    for field in dataclasses.fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        if field.name.startswith("seconds"):
            merged[field.name] = max(values)
        else:
            merged[field.name] = sum(values[1:], start=values[0])
    return type(parts[0])(**merged)
