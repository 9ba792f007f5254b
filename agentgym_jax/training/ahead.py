"""The collections of a run, each in its turn or while the learner is at the one before."""

import concurrent.futures
import threading
import time

from agentgym_jax.learner.memory import Memory
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run
from agentgym_jax.training.collection import Collected, collect


class Collections:
    """Collects the steps of a run, one at a time, in the background where it is told to.

    What a collection gives is a function of the sampler's weights, the memory and the step: when it
    runs changes nothing. From `begin` to `wait` sampler and environments are its own.
    """

    def __init__(self, run: Run, parts: RLParts):
        """Starts nothing."""
        self._run = run
        self._parts = parts
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="collect")
        self._is_closed = threading.Event()
        self._begun: concurrent.futures.Future[Collected] | None = None

    def begin(self, memory: Memory, step: int) -> None:
        """Starts to collect in the background.

        Args:
          memory: what the run remembers before the step.
          step: steps done before it.
        """
        if self._begun is not None:
            raise RuntimeError(f"the collection before that of step {step + 1} was not taken")
        self._begun = self._thread.submit(
            collect, self._run, self._parts, memory, step, self._should_stop
        )

    def wait(self) -> float:
        """Returns when nothing is being collected any more: seconds that took.

        Raises:
          StopRequested, ServerUnavailable, ...: whatever ended the collection.
        """
        started = time.perf_counter()
        if self._begun is not None:
            self._begun.result()
        return time.perf_counter() - started

    def take(self, memory: Memory, step: int) -> Collected:
        """The episodes of a step: those that were begun, or else collected now.

        Raises:
          StopRequested, ServerUnavailable, ...: whatever ended the collection.
        """
        if self._begun is None:
            return collect(self._run, self._parts, memory, step, self._run.should_stop)
        begun, self._begun = self._begun, None
        return begun.result()

    def __enter__(self) -> "Collections":
        return self

    def __exit__(self, *_: object) -> None:
        """Ends what is being collected: nobody will take it."""
        self._is_closed.set()
        self._thread.shutdown()

    def _should_stop(self) -> bool:
        return self._is_closed.is_set() or self._run.should_stop()
