"""Results of calls, which clients fetch later; the calls of a model run in the order of their numbers."""

import collections
import concurrent.futures
import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from agentgym_jax.serving.requests import NotServingError, OverloadedError, RequestError

Result = bytes | dict[str, Any]  # protobuf, or JSON
Future = concurrent.futures.Future

GAP_S = 60.0  # time that a call waits for those before it, in seconds
_MAX_HELD = 1024  # calls that wait for an earlier one, and for the thread
_MAX_CALLS = 8192  # calls without a result, or whose result nobody has fetched
_MAX_FETCHED = 256  # results that are kept after they were fetched, for an answer that got lost
_STOPPED = "the server stops"


class Results:
    """Futures by name; a repeated call gets the future of the first one.

    Fetched results are forgotten, except for the newest ones, and so are the oldest results of all if
    nobody fetches them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fetched: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._futures: collections.OrderedDict[str, tuple[bytes, Future[Result]]] = (
            collections.OrderedDict()
        )

    def claim(self, name: str, digest: bytes) -> "tuple[Future[Result], bool]":
        """Returns the future of a call, and True if the call is new.

        Raises:
          RequestError: Another call, with another digest, has the same name.
          OverloadedError: There are too many unfinished calls.
        """
        with self._lock:
            if name in self._futures:
                known, future = self._futures[name]
                if known != digest:
                    raise RequestError(
                        f"{name} is the number of an earlier, different call: number the calls of a "
                        "client 1, 2, 3, or make a new client",
                        "out_of_order",
                    )
                return future, False
            if len(self._futures) >= _MAX_CALLS:
                done = next((n for n, (_, f) in self._futures.items() if f.done()), None)
                if done is None:
                    raise OverloadedError(f"{_MAX_CALLS} calls wait already; try again later")
                del self._futures[done]
            future = Future()
            future.set_running_or_notify_cancel()  # only the server may complete it
            self._futures[name] = digest, future
            return future, True

    def mark_fetched(self, name: str) -> None:
        """Records that a result was passed to its client."""
        with self._lock:
            self._fetched[name] = None
            while len(self._fetched) > _MAX_FETCHED:
                self._futures.pop(self._fetched.popitem(last=False)[0], None)

    def forget(self, name: str) -> None:
        """Forgets a call that could not be accepted, so that it may be repeated."""
        with self._lock:
            self._futures.pop(name, None)

    def find(self, name: str) -> "Future[Result]":
        """Returns the future of a call; raises RequestError if there is none."""
        with self._lock:
            if name not in self._futures:
                raise RequestError(
                    f"there is no call {name[:200]!r}: it was never made, or its result is too old; "
                    "repeat the call",
                    "not_found",
                )
            return self._futures[name][1]


@dataclasses.dataclass
class _Job:
    work: Callable[[], Result]
    future: "Future[Result]"
    deadline: float = 0.0


class Worker:
    """Thread that runs calls one after the other; a context manager."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)

    def submit(self, work: Callable[[], Result], future: "Future[Result]") -> None:
        """Appends a call."""
        self._jobs.put(_Job(work, future))

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the present call; the others fail with NotServingError."""
        self._is_stopping = True
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._is_stopping:
                job.future.set_exception(NotServingError(_STOPPED))
            else:
                complete(job.future, job.work)


def complete(future: "Future[Result]", work: Callable[[], Result]) -> None:
    """Completes a future with the result or the error of `work`."""
    results: list[Result] = []
    if complete_if_failed(future, lambda: results.append(work())):
        future.set_result(results[0])


def complete_if_failed(future: "Future[Result]", work: Callable[[], None]) -> bool:
    """Runs `work`; completes a future with its error, or returns True."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the client gets it; the calls of others go on
        if not isinstance(error, RequestError | NotServingError):
            logging.exception("a call failed")
        future.set_exception(error)
        return False
    return True


class Ordered:
    """Calls of one model, which reach the worker in the order of their numbers 1, 2, 3.

    A call that arrives early waits for those before it, at most `GAP_S`, unless they were refused.
    """

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker, self._name = worker, name
        self._lock = threading.Lock()
        self._next = 1
        self._held: dict[int, _Job] = {}
        self._refused: set[int] = set()

    def submit(self, number: int, work: Callable[[], Result], future: "Future[Result]") -> None:
        """Accepts a call.

        Raises:
          RequestError: Calls with this number or a later one have run already.
          OverloadedError: Too many calls wait for earlier ones.
        """
        with self._lock:
            if number < self._next:
                raise RequestError(
                    f"call {number} of {self._name} comes after call {self._next - 1}: number the "
                    "calls of a client 1, 2, 3, or make a new client",
                    "out_of_order",
                )
            if len(self._held) >= _MAX_HELD:
                raise OverloadedError(f"{_MAX_HELD} calls wait for call {self._next}")
            self._held[number] = _Job(work, future, time.monotonic() + GAP_S)
            self._run_held()

    def skip(self, number: int) -> None:
        """Records that a call was refused; it may be repeated until a later call has run."""
        with self._lock:
            if self._next <= number < self._next + _MAX_HELD:
                self._refused.add(number)
            self._run_held()

    def _run_held(self) -> None:
        while self._held and (self._next in self._held or self._next in self._refused):
            self._refused.discard(self._next)
            job = self._held.pop(self._next, None)
            if job is not None:
                self._worker.submit(job.work, job.future)
            self._next += 1

    def expire(self) -> None:
        """Fails the calls that have waited too long; later calls are accepted as before."""
        with self._lock:
            now = time.monotonic()
            late = [number for number, job in self._held.items() if job.deadline < now]
            for number in late:
                message = (
                    f"call {number} of {self._name} waited {GAP_S:g} s for call {self._next}, which did "
                    "not come: make the calls of a client in order, or make a new client"
                )
                self._held.pop(number).future.set_exception(RequestError(message, "out_of_order"))

    def close(self, reason: str) -> None:
        """Fails all calls that wait for earlier ones."""
        with self._lock:
            for job in self._held.values():
                job.future.set_exception(RequestError(reason, "unloaded"))
            self._held.clear()
