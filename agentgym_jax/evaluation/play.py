"""Collects and scores the episodes of an agent on a fixed set of tasks.

A server outage stops an evaluation, but a task that its environment can never serve does not. If
only unservable tasks are left, this looks like an outage. Before an evaluation stops, it therefore
repeats a task that the server has served before. If the repetition succeeds, the failed tasks run
one at a time. Each of them then fails alone, uses up its retries, and ends as invalid.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config.settings import EvaluationSettings
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.evaluation.journal import Key, key_of
from agentgym_jax.evaluation.scores import EpisodeScore, from_trajectory
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.scheduler import EpisodeCollector
from agentgym_jax.sampling.options import SamplingOptions

# Evaluation uses separate random keys that are the same at every step of a run, so two evaluations
# differ only by the policy. Training steps are numbered from 0, so no training key equals an
# evaluation key.
KEY_STEP = -1
_POLL_S = 0.25
_TICKET = "repeated task"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes and scores of one evaluation; sampled and greedy episodes are separate."""

    sampled: list[EpisodeScore]
    greedy: list[EpisodeScore]
    trajectories: list[Trajectory]


def evaluate(
    collector: EpisodeCollector | None,
    tasks: Sequence[Task],
    settings: EvaluationSettings,
    *,
    seed: int,
    step: int,
    max_turns: Mapping[str, int],
    sampling: SamplingOptions,
    max_parse_errors: int,
    on_progress: Callable[[int, int, int], None],
    should_stop: Callable[[], bool],
    finished: Mapping[Key, Trajectory] | None = None,
    on_episode: Callable[[Trajectory], None] = lambda trajectory: None,
) -> Evaluation:
    """Collects and scores all episodes; sampled and greedy ones share one rollout.

    The episodes in `finished` are not repeated; if no other is left, `collector` may be None. The
    random draws of an episode depend only on its key, so the other episodes are the same as without
    `finished`. `step`, the number of training steps done, is stored in the trajectories.
    `max_turns` is the turn limit by environment. `on_episode` is called with every episode that has
    ended. An episode that an outage ended as ABORTED is repeated and passed to `on_episode` again.
    After a stop, the remaining episodes end as ABORTED.

    Raises:
      ServerUnavailable: A server no longer serves any task.
    """
    options_of_samples = [sampling] * settings.samples + [sampling.greedy()] * settings.greedy
    requests = [
        EpisodeRequest(
            task=task,
            sample=sample,
            seed=seed,
            step=KEY_STEP,
            limits=EpisodeLimits(
                max_turns=max_turns[task.environment],
                max_tokens=sampling.max_tokens,
                max_parse_errors=max_parse_errors,
            ),
            sampling=options,
        )
        for task in tasks
        for sample, options in enumerate(options_of_samples)
    ]
    episodes = dict(finished or {})

    def is_missing(request: EpisodeRequest) -> bool:
        episode = episodes.get(key_of(request))
        return episode is None or episode.outcome is Outcome.ABORTED

    def collect(collector: EpisodeCollector, missing: Sequence[EpisodeRequest]) -> None:
        num_ended = len(requests) - sum(map(is_missing, requests))

        def end(place: int, trajectory: Trajectory) -> None:
            episodes[key_of(missing[place])] = trajectory
            on_episode(dataclasses.replace(trajectory, step=step))

        collector.collect(
            missing,
            replacement_stride=len(options_of_samples),
            on_progress=lambda n, _, tokens: on_progress(num_ended + n, len(requests), tokens),
            should_stop=should_stop,
            on_episode=end,
        )

    while collector is not None and any(map(is_missing, requests)):
        try:
            collect(collector, [request for request in requests if is_missing(request)])
            break  # all episodes have ended, possibly because of a stop
        except ServerUnavailable as error:
            failed = [task for task in tasks if task in error.tasks]
            if not _serves_others(collector.pool, failed, list(episodes.values())):
                raise
            logging.warning(
                "the server serves other tasks: the %d that it failed run one by one", len(failed)
            )
            for task in failed:
                collect(collector, [r for r in requests if r.task == task and is_missing(r)])
    result = Evaluation([], [], [])
    for request in requests:
        trajectory = dataclasses.replace(episodes[key_of(request)], step=step)
        scores = result.greedy if request.sampling.temperature == 0.0 else result.sampled
        scores.append(from_trajectory(trajectory, request.task.group))
        result.trajectories.append(trajectory)
    return result


def _serves_others(pool: EnvPool, failed: Sequence[Task], known: Sequence[Trajectory]) -> bool:
    """Returns True if each environment of the failed tasks still serves a task it served before."""
    items = {task.item_id for task in failed}
    for name in {task.environment for task in failed}:
        repeatable = [
            t
            for t in known
            if t.outcome.is_valid
            and t.item_id not in items
            and t.item_id.rpartition("_")[0] == name
            and any(turn.action is not None for turn in t.turns)
        ]
        if not repeatable or not _repeat(pool, min(repeatable, key=lambda t: len(t.turns))):
            return False
    return bool(failed)


def _repeat(pool: EnvPool, trajectory: Trajectory) -> bool:
    """Returns True if the actions of an episode can be repeated without an environment error."""
    environment, _, data_idx = trajectory.item_id.rpartition("_")
    actions = iter([turn.action for turn in trajectory.turns if turn.action is not None])
    pool.start(_TICKET, environment, int(data_idx))
    try:
        while True:
            for reply in pool.poll(_POLL_S):
                if reply.observation is None:
                    logging.warning("%s, served before: %s", trajectory.item_id, reply.error)
                    return False
                action = next(actions, None)
                if reply.observation.done or action is None:
                    return True
                pool.step(_TICKET, action)
    finally:
        pool.finish(_TICKET)
