"""Queue for worker threads whose entries may have a delay."""

import heapq
import itertools
import threading
import time
from typing import Generic, TypeVar

Job = TypeVar("Job")


class JobQueue(Generic[Job]):
    """Queue of jobs in the order of their due time. A delayed job does not occupy a worker."""

    def __init__(self) -> None:
        self._jobs: list[tuple[float, int, Job]] = []  # heap of due time, order of arrival and job
        # breaks ties between equal times, so that jobs themselves are never compared
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._ending = False

    def put(self, job: Job, *, delay_s: float = 0.0) -> None:
        """Adds a job that is due in `delay_s` seconds."""
        with self._changed:
            due = time.monotonic() + delay_s
            heapq.heappush(self._jobs, (due, next(self._order), job))
            self._changed.notify()

    def get(self) -> Job | None:
        """Waits for the next due job and returns it; None if the queue was ended and is empty."""
        with self._changed:
            while self._jobs or not self._ending:
                wait_s = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if wait_s is not None and wait_s <= 0:
                    self._changed.notify()  # another worker waits for the next job
                    return heapq.heappop(self._jobs)[2]
                self._changed.wait(wait_s)
            return None

    def take_all(self) -> list[Job]:
        """Removes and returns all waiting jobs, due or not."""
        with self._changed:
            jobs = [job for _, _, job in sorted(self._jobs)]
            self._jobs.clear()
            self._changed.notify_all()
            return jobs

    def end(self) -> None:
        """Makes `get` return None once the queue is empty."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
