"""Collects and scores the episodes of an agent on a fixed set of tasks.

A server outage stops an evaluation, but a task that its environment can never serve does not. Near
the end, or after a resume, only unservable tasks may be left, and this looks like an outage. Before
an evaluation stops, it therefore repeats a task that the server has served before. If the
repetition succeeds, the failed tasks run one at a time. Each of them then fails alone, uses up its
retries, and ends as invalid.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.data.tasks import Task
from agentgym_jax.evaluation.journal import Key, key_of
from agentgym_jax.evaluation.scores import EpisodeScore, from_trajectory
from agentgym_jax.jobs.config.settings import EvaluationSettings
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.trajectory import Outcome, Trajectory

# Evaluation uses separate random keys that are the same at every step of a run, so two evaluations
# differ only by the policy. Training steps are numbered from 0, so no training key equals an
# evaluation key.
_KEY_STEP = -1
_POLL_S = 0.25
_TICKET = "repeated task"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes and scores of one evaluation; sampled and greedy episodes are separate."""

    sampled: list[EpisodeScore]
    greedy: list[EpisodeScore]
    trajectories: list[Trajectory]


def evaluate(
    collector: Collector | None,
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
    pool: EnvPool,
    finished: Mapping[Key, Trajectory] | None = None,
    on_episode: Callable[[Trajectory], None] | None = None,
) -> Evaluation:
    """Collects and scores all episodes; sampled and greedy ones share one rollout, so that no row
    stays empty.

    The random draws of an episode depend only on its key, so skipping finished episodes does not
    change the remaining episodes.

    Args:
      collector: Collector of the agent, whose sampler has the weights to evaluate. None if all
        episodes are finished.
      tasks: Tasks of the evaluation.
      settings: Numbers of sampled and greedy episodes per task.
      seed: Seed of the random draws.
      step: Number of training steps done, for the record.
      max_turns: Turn limit by environment.
      sampling: Sampling options of the sampled episodes; greedy episodes have the same limits.
      max_parse_errors: Maximum number of parse errors per episode, as in training.
      on_progress: Callback as in `Collector.collect`.
      should_stop: Function as in `Collector.collect`.
      pool: Pool of the collector.
      finished: Finished episodes by request. They are not repeated.
      on_episode: Callback with every episode as soon as it has ended. If an episode ended as
        ABORTED in an outage, it is repeated and passed to the callback again.

    Raises:
      ServerUnavailable: A server no longer serves any task. If it serves some tasks, the episodes
        of the other tasks end as invalid.
    """
    requests = _requests(tasks, settings, sampling, max_turns, max_parse_errors, seed)
    done = dict(finished or {})
    missing = [request for request in requests if key_of(request) not in done]
    kept = len(requests) - len(missing)

    def keep(trajectory: Trajectory) -> None:
        if on_episode is not None:
            on_episode(dataclasses.replace(trajectory, step=step))

    if collector is not None:
        collected = _Collection(
            collector,
            missing,
            stride=settings.samples + settings.greedy,
            on_progress=lambda n, total, tokens: on_progress(kept + n, kept + total, tokens),
            should_stop=should_stop,
            on_episode=keep,
        ).run(pool, list(done.values()))
        done |= {key_of(request): t for request, t in zip(missing, collected, strict=True)}
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


def _requests(
    tasks: Sequence[Task],
    settings: EvaluationSettings,
    sampling: SamplingOptions,
    max_turns: Mapping[str, int],
    max_parse_errors: int,
    seed: int,
) -> list[EpisodeRequest]:
    modes = [(sample, sampling) for sample in range(settings.samples)]
    if settings.greedy:
        greedy = dataclasses.replace(sampling, temperature=0.0, top_k=0, top_p=1.0)
        modes.append((settings.samples, greedy))
    return [
        EpisodeRequest(
            task=task,
            sample=sample,
            seed=seed,
            step=_KEY_STEP,
            limits=EpisodeLimits(
                max_turns=max_turns[task.environment],
                max_tokens=sampling.max_tokens,
                max_parse_errors=max_parse_errors,
            ),
            sampling=options,
        )
        for task in tasks
        for sample, options in modes
    ]


class _Collection:
    """Runs all requests to their end, even if environments cannot serve some of the tasks."""

    def __init__(
        self,
        collector: Collector,
        requests: Sequence[EpisodeRequest],
        *,
        stride: int,
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
        on_episode: Callable[[Trajectory], None],
    ):
        self._collector = collector
        self._requests = requests
        self._stride = stride
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._on_episode = on_episode
        self._ended: dict[int, Trajectory] = {}

    def run(self, pool: EnvPool, earlier: Sequence[Trajectory]) -> list[Trajectory]:
        """Returns one trajectory per request, in the order of the requests; after a stop the
        remaining ones are ABORTED.

        Args:
          pool: Pool of the collector; used to repeat an earlier task.
          earlier: Valid episodes from earlier starts of the evaluation.

        Raises:
          ServerUnavailable: A server fails a task that it served before, or no task that it served
              is known.
        """
        tasks = list(dict.fromkeys(request.task for request in self._requests))
        while indices := self._unsettled():
            try:
                self._collect(indices)
                break  # all episodes have ended, possibly because of a stop
            except ServerUnavailable as error:
                failed = [task for task in tasks if task in error.tasks]
                if not _serves_others(pool, failed, [*earlier, *self._ended.values()]):
                    raise
                logging.warning(
                    "the server serves other tasks: the %d that it failed run one by one",
                    len(failed),
                )
                for task in failed:
                    self._collect([i for i in self._unsettled() if self._requests[i].task == task])
        return [self._ended[i] for i in range(len(self._requests))]

    def _collect(self, indices: Sequence[int]) -> None:
        settled = len(self._requests) - len(self._unsettled())

        def end(place: int, trajectory: Trajectory) -> None:
            self._ended[indices[place]] = trajectory
            self._on_episode(trajectory)

        self._collector.collect(
            [self._requests[i] for i in indices],
            replacement_stride=self._stride,
            on_progress=lambda done, total, tokens: self._on_progress(
                settled + done, len(self._requests), tokens
            ),
            should_stop=self._should_stop,
            on_episode=end,
        )

    def _unsettled(self) -> list[int]:
        """Returns the indices of the requests whose episode has not ended, or ended as ABORTED."""
        return [
            i
            for i in range(len(self._requests))
            if i not in self._ended or self._ended[i].outcome is Outcome.ABORTED
        ]


def _serves_others(pool: EnvPool, failed: Sequence[Task], known: Sequence[Trajectory]) -> bool:
    """Returns True if each environment of the failed tasks still serves another task that it served
    before.
    """
    items = {task.item_id for task in failed}
    for name in {task.environment for task in failed}:
        repeatable = [
            t
            for t in known
            if t.outcome.is_valid
            and t.item_id not in items
            and t.item_id.rpartition("_")[0] == name
            and _actions(t)
        ]
        if not repeatable or not _repeat(pool, min(repeatable, key=lambda t: len(t.turns))):
            return False
    return bool(failed)


def _repeat(pool: EnvPool, trajectory: Trajectory) -> bool:
    """Replays the actions of an episode; returns False if the environment raises an error during
    the replay.
    """
    environment, _, data_idx = trajectory.item_id.rpartition("_")
    pool.start(_TICKET, environment, int(data_idx))
    try:
        actions = iter(_actions(trajectory))
        while True:
            replies = pool.poll(_POLL_S)
            if not replies:
                continue
            (reply,) = replies
            if reply.observation is None:
                logging.warning("%s, served before: %s", trajectory.item_id, reply.error)
                return False
            action = next(actions, None)
            if reply.observation.done or action is None:
                return True
            pool.step(_TICKET, action)
    finally:
        pool.finish(_TICKET)


def _actions(trajectory: Trajectory) -> list[str]:
    return [turn.action for turn in trajectory.turns if turn.action is not None]
