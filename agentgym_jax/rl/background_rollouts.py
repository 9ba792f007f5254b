"""Rollouts that run in the background, during updates.

With `rollout.max_off_policy_steps=1` the rollout of the next step runs during an update, with the
weights before this update. With k > 1 the episodes of the next k steps run at the same time, each up
to a turn that waits for newer weights:

    during update n, with the weights after n steps:
        step n+1    last turns of its episodes
        step n+2    turns before these
        ...
        step n+k    first turns

The turn alone decides which weights sample it (`turn_versions`), so neither the timing nor a resumed
run changes an episode.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence

from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.jobs.run import Run, SampledUpdate, StopRequested
from agentgym_jax.learner.controller_state import ControllerState
from agentgym_jax.rl.build import RLParts
from agentgym_jax.rl.rollout_step import (
    DrawnRound,
    Groups,
    Rollout,
    collect_rollout,
    draw_round,
    rollout_metrics,
)
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.rollout.shared import any_process, own_places, share_episodes

Collect = Callable[[ControllerState, int, Callable[[], bool]], Rollout | None]


def turn_versions(step: int, max_turns: int, max_off_policy_steps: int) -> tuple[int, ...]:
    """Returns the version of the weights that sample each turn of an episode of a step.

    The last turns use the weights before the last update, earlier turns older ones. The turns are
    divided evenly among the `max_off_policy_steps` versions; if there are fewer turns, the oldest
    versions have none.
    """
    ages = (
        1 + (max_turns - 1 - turn) * max_off_policy_steps // max_turns for turn in range(max_turns)
    )
    return tuple(max(0, step - age) for age in ages)


class OverlappingRollouts:
    """Rollouts of several steps whose episodes run at the same time."""

    def __init__(self, run: Run, parts: RLParts, first_step: int):
        """Starts without episodes; rollouts before that of `first_step` are not needed."""
        self._run, self._parts = run, parts
        self._first_step = self._next_step = first_step
        self._episodes = parts.agent.collector.overlapping(parts.settings.rollout.group_size)
        self._drawn: dict[int, tuple[DrawnRound, range]] = {}  # by step, with indices of episodes

    def collect(
        self, controllers: ControllerState, step: int, should_stop: Callable[[], bool]
    ) -> Rollout | None:
        """Runs all episodes up to the turns of the sampler's weights; returns the rollout of a step.

        Draws the tasks of the later steps that may begin. Returns None if the rollout of the step is
        not needed.
        """
        parts, sampler = self._parts, self._parts.agent.sampler
        ahead = parts.settings.rollout.max_off_policy_steps - 1 if step else 0
        last = min(step + ahead, self._run.total_steps - 1)
        self._draw(controllers, step, last)
        sampler.reset_statistics()
        drawn, indices = None, range(0)
        if step >= self._first_step:
            drawn, indices = self._drawn.pop(step)

        def collect_own() -> tuple[list[Trajectory], CollectStatistics]:
            statistics = self._episodes.run(
                sampler.version,
                on_progress=self._run.progress(f"rollout, steps {step + 1} to {last + 1}"),
                should_stop=should_stop,
            )
            trajectories = self._episodes.take(indices)
            if (judge := parts.agent.judge) is not None:
                trajectories = judge.score_rollout(trajectories, statistics, should_stop)
            return trajectories, statistics

        requests = [] if drawn is None else drawn.requests
        trajectories, statistics = share_episodes(requests, collect_own)
        if any_process(should_stop()):  # the episodes may have been aborted
            raise StopRequested(f"stopped while collecting step {step + 1}")
        if drawn is None:
            return None
        size = parts.settings.rollout.group_size
        sampled = Groups(size, drawn.tasks, drawn.limits, trajectories)
        metrics = rollout_metrics(parts, sampled, statistics)
        return Rollout(sampled, range(len(drawn.tasks)), metrics, drawn.tasks_taken)

    def close(self) -> None:
        """Ends the episodes that have not finished."""
        self._episodes.close()

    def _draw(self, controllers: ControllerState, step: int, last: int) -> None:
        """Draws the tasks of the steps up to `last` and adds their episodes."""
        settings = self._parts.settings
        per_step = settings.rollout.tasks_per_step * settings.controllers.curriculum.candidates
        for number in range(self._next_step, last + 1):
            # `controllers` have counted the tasks of the steps before `step`
            taken = (number - step) * per_step
            drawn = draw_round(self._run, self._parts, controllers, number, taken)
            places = own_places([request.task for request in drawn.requests])
            requests = [
                dataclasses.replace(
                    request,
                    turn_versions=turn_versions(
                        number, request.limits.max_turns, settings.rollout.max_off_policy_steps
                    ),
                )
                for request in [drawn.requests[i] for i in places]
            ]
            self._drawn[number] = (drawn, self._episodes.add(requests))
        self._next_step = max(self._next_step, last + 1)


class RolloutPrefetcher(contextlib.AbstractContextManager["RolloutPrefetcher"]):
    """Collects one rollout at a time; a rollout started by `begin` runs in the background.

    A rollout depends only on the sampler's weights, the controllers and the step, so its timing
    does not change the result. From `begin` to `wait` the rollout has exclusive use of sampler and
    environments. `wait` and `take` raise the error that ended the rollout.
    """

    def __init__(self, run: Run, parts: RLParts, first_step: int):
        """Stores the run and its components; the first rollout to `take` is that of `first_step`."""
        self._run = run
        self._parts = parts
        self._first_step = first_step
        self._collect: Collect = functools.partial(collect_rollout, run, parts)
        self._overlapping: OverlappingRollouts | None = None
        if parts.settings.rollout.max_off_policy_steps > 1:
            self._overlapping = OverlappingRollouts(run, parts, first_step)
            self._collect = self._overlapping.collect
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="rollout")
        self._is_closed = threading.Event()
        self._pending: concurrent.futures.Future[Rollout | None] | None = None

    def repeat(self, updates: Sequence[SampledUpdate]) -> None:
        """Samples the episodes again that ran during earlier updates, with the saved weights."""
        for update in updates:
            self._parts.agent.set_stale_params(update.weights, version=update.version)
            self.begin(update.controllers, update.version + 1)
            self.wait()
            if update.version + 1 < self._first_step:
                self._pending = None  # this rollout has been trained on

    def begin(self, controllers: ControllerState, step: int) -> None:
        """Starts the rollout after `step` steps in the background."""
        if self._pending is not None:
            raise RuntimeError(f"the rollout before that of step {step + 1} was not taken")
        self._pending = self._thread.submit(self._collect, controllers, step, self._should_stop)

    def wait(self) -> float:
        """Waits for a rollout in the background; returns the waiting time in seconds."""
        started = time.perf_counter()
        if self._pending is not None:
            self._pending.result()
        return time.perf_counter() - started

    def take(self, controllers: ControllerState, step: int) -> Rollout:
        """Returns the rollout after `step` steps, from the background or collected now."""
        pending, self._pending = self._pending, None
        if pending is None:
            rollout = self._collect(controllers, step, self._run.should_stop)
        else:
            rollout = pending.result()
        assert rollout is not None  # a step below `first_step`
        return rollout

    def __exit__(self, *_: object) -> None:
        """Aborts the rollout in the background, if there is one."""
        self._is_closed.set()
        self._thread.shutdown()
        if self._overlapping is not None:
            self._overlapping.close()

    def _should_stop(self) -> bool:
        return self._is_closed.is_set() or self._run.should_stop()
