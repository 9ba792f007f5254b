"""Joint rollout of all processes of a run.

Each process collects the episodes of its own tasks with its own sampler and servers. Afterwards all
processes have summaries of all episodes (episodes/summary.py), so that advantages, metrics and
decisions are the same everywhere. A process loads the episodes that it needs as a whole: those in its
rows of the batch, and those whose records it writes.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes import summary
from agentgym_jax.episodes.trajectory import Outcome, Trajectory, from_message, to_message
from agentgym_jax.mesh import processes
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.rollout.retries import check_collected
from agentgym_jax.rollout.scheduler import EpisodeCollector
from agentgym_jax.sampling.sampler_statistics import SamplerStatistics

_CHANNEL = "episodes"


def own_places(tasks: Sequence[Task]) -> list[int]:
    """Returns the places of this process's tasks; all places of a task have the same process."""
    owners = _owners(tasks)
    return [i for i, task in enumerate(tasks) if owners[task] == processes.index()]


def _owners(tasks: Sequence[Task]) -> dict[Task, int]:
    """Returns the process of every task; the n-th task belongs to process n mod N."""
    return {t: n % processes.count() for n, t in enumerate(dict.fromkeys(tasks))}


def collect_shared(
    collector: EpisodeCollector, requests: Sequence[EpisodeRequest], **options: Any
) -> tuple[list[Trajectory], CollectStatistics]:
    """Returns the result of `collector.collect` for the requests of all processes.

    All processes call this function with the same arguments. Seconds in the statistics are those of
    the slowest process.
    """
    if processes.count() == 1:
        return collector.collect(requests, **options)
    own = [requests[i] for i in own_places([request.task for request in requests])]
    return share_episodes(requests, lambda: collector.collect(own, is_part=True, **options))


def share_episodes(
    requests: Sequence[EpisodeRequest],
    collect: Callable[[], tuple[list[Trajectory], CollectStatistics]],
) -> tuple[list[Trajectory], CollectStatistics]:
    """Returns the episodes of all processes in the order of the requests, and the statistics.

    `collect` returns the episodes of the process's own requests (`own_places`).
    """
    if processes.count() == 1:
        merged, statistics = collect()
    else:
        found = _gather(collect, _offer, _summaries)
        if requests:
            _withdraw_before(requests[0].step - 1)
        # Each process has its episodes in the order of the requests.
        rests = [iter(trajectories) for trajectories, _ in found]
        owners = _owners([request.task for request in requests])
        merged = [next(rests[owners[request.task]]) for request in requests]
        statistics = _merge([statistics for _, statistics in found])
    check_collected(requests, merged)
    return merged, statistics


def gather_episodes(
    collect: Callable[[], tuple[Sequence[Trajectory], CollectStatistics]],
) -> list[tuple[list[Trajectory], CollectStatistics]]:
    """Returns the results of `collect` of all processes, by process number, with whole episodes.

    Raises:
      ServerUnavailable: An environment of any process was unavailable for too long.
    """
    return _gather(
        collect,
        lambda trajectories: [to_message(t) for t in trajectories],
        lambda i, messages, own: [from_message(m) for m in messages],
    )


# Keys of the episodes that this process offers to others, by training step; and their numbers.
_offered: dict[int, list[str]] = {}
_numbers = itertools.count()


def _offer(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Offers whole episodes to the other processes; returns their summaries and keys."""
    keys = []
    for t in trajectories:
        keys.append(f"episode/{processes.index()}/{next(_numbers)}")
        processes.offer(keys[-1], to_message(t))
        _offered.setdefault(t.step, []).append(keys[-1])
    return {"summaries": summary.encode(trajectories), "keys": keys}


def _withdraw_before(step: int) -> None:
    """Withdraws the episodes of earlier steps.

    If all processes have begun to share the episodes of step n + 1, they have done the update of
    step n - 1, also with rollouts in the background.
    """
    for old in [number for number in _offered if number < step]:
        for key in _offered.pop(old):
            processes.withdraw(key)


def _summaries(i: int, message: Any, own: Sequence[Trajectory]) -> list[Trajectory]:
    """Returns the episodes of process i: whole ones if it is this process, or else summaries."""
    if i == processes.index():
        return list(own)

    def load(place: int) -> Trajectory:
        return from_message(processes.fetch(message["keys"][place], i))

    return list(summary.decode(message["summaries"], load))


def _gather(
    collect: Callable[[], tuple[Sequence[Trajectory], CollectStatistics]],
    encode: Callable[[Sequence[Trajectory]], Any],
    decode: Callable[[int, Any, Sequence[Trajectory]], list[Trajectory]],
) -> list[tuple[list[Trajectory], CollectStatistics]]:
    """Returns the results of `collect` of all processes; an error of any of them is raised in all.

    `decode` has the number of a process, its message, and the episodes of this process.
    """
    trajectories: Sequence[Trajectory] = ()
    statistics, error = CollectStatistics(collections.Counter()), None
    try:
        trajectories, statistics = collect()
    except ServerUnavailable as unavailable:
        error = unavailable
    message = {
        "episodes": encode(trajectories),
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
            decode(i, answer["episodes"], trajectories),
            CollectStatistics(
                **{
                    **answer["statistics"],
                    "env_errors": collections.Counter(answer["statistics"]["env_errors"]),
                    "judge": collections.Counter(answer["statistics"]["judge"]),
                }
            ),
        )
        for i, answer in enumerate(answers)
    ]


def share_statistics(own: SamplerStatistics) -> SamplerStatistics:
    """Returns the sum of the sampler statistics of all processes; the maximum of seconds."""
    answers = processes.gather(dataclasses.asdict(own), _CHANNEL)
    return _merge([SamplerStatistics(**answer) for answer in answers])


def any_process(flag: bool) -> bool:
    """Returns True if the flag is True in any process; all processes call this function together."""
    return any(processes.gather(flag, _CHANNEL))


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
