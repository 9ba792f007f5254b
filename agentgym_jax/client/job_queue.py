"""Queue for worker threads whose entries may have a delay."""

import collections
import heapq
import itertools
import threading
import time
from typing import Generic, TypeVar

Job = TypeVar("Job")


class JobQueue(Generic[Job]):
    """Queue of jobs in the order of their due time. A delayed job does not occupy a worker."""

    def __init__(self) -> None:
        self._ready: collections.deque[Job] = collections.deque()
        self._delayed: list[tuple[float, int, Job]] = []
        # breaks ties between equal times, so that jobs themselves are never compared
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._ending = False

    def put(self, job: Job, *, delay_s: float = 0.0) -> None:
        """Adds a job that is due in `delay_s` seconds."""
        with self._changed:
            if delay_s > 0:
                due = time.monotonic() + delay_s
                heapq.heappush(self._delayed, (due, next(self._order), job))
            else:
                self._ready.append(job)
            self._changed.notify()

    def get(self) -> Job | None:
        """Waits for the next due job and returns it; returns None when the queue was ended and is
        empty.
        """
        with self._changed:
            while True:
                wait_s = self._promote()
                if self._ready:
                    return self._ready.popleft()
                if self._ending and wait_s is None:
                    return None
                self._changed.wait(wait_s)

    def take_all(self) -> list[Job]:
        """Removes and returns all waiting jobs, due or not."""
        with self._changed:
            jobs = [*self._ready, *(job for _, _, job in sorted(self._delayed))]
            self._ready.clear()
            self._delayed.clear()
            self._changed.notify_all()
            return jobs

    def end(self) -> None:
        """Makes `get` return None once the queue is empty."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def _promote(self) -> float | None:
        """Moves due jobs to the ready jobs.

        Returns the seconds until the next delayed job is due, or None if there is none.
        """
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(heapq.heappop(self._delayed)[2])
            self._changed.notify()
        return self._delayed[0][0] - now if self._delayed else None
