"""Rollouts of a run, in the foreground or during the previous update."""

import concurrent.futures
import threading
import time

from agentgym_jax.jobs.rl.build import RLParts
from agentgym_jax.jobs.rl.rollout_step import Rollout, collect_rollout
from agentgym_jax.jobs.run import Run
from agentgym_jax.learner.controller_state import ControllerState


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
