"""Agreement between the processes of a run on several hosts.

All processes execute the same program. Host values that may differ between them, such as sampled
episodes, pass through `gather` or `broadcast`, so that all later decisions are the same everywhere.
Process 0 writes the files of the run. With one process, all functions return at once.

Values travel through a key-value store, which agentgym_jax.mesh.cluster connects. Unlike collectives on
devices, it can be used by a rollout in the background while the learner computes.
"""

import collections
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

# Longest wait for a value of another process. Rollouts of different processes may differ by the
# time in which an environment is unavailable.
_PATIENCE_S = 3600.0
_POLL_S = 1.0
_FAILED = "failed"
_STOP = "stop"


class ProcessesError(RuntimeError):
    """Another process failed, differs from this one, or does not answer."""


class Store(Protocol):
    """Values by key, shared by all processes; every method may raise ProcessesError.

    A value consists of numbers, strings, bytes, NumPy arrays, lists and dictionaries.
    """

    def put(self, key: str, value: Any, *, is_shared: bool = False) -> None:
        """Stores a value; of a shared key, which several processes may set, the last remains."""

    def delete(self, key: str) -> None:
        """Deletes a value, or does nothing if there is none."""

    def get(self, key: str, timeout_s: float = 0.0) -> Any:
        """Returns a value once it exists, or None after `timeout_s` seconds without one."""


class _State:
    """Place of this process among the others, and its counters."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.index, self.count = 0, 1
        self.lock = threading.Lock()
        self.calls: collections.Counter[str] = collections.Counter()
        self.next_poll = 0.0
        self.is_stop_known = False


_state = _State()


def join(store: Store, index: int, count: int) -> None:
    """Makes this process number `index` of `count` processes."""
    _state.store, _state.index, _state.count = store, index, count


def index() -> int:
    """Returns the number of this process, from 0."""
    return _state.index


def count() -> int:
    """Returns the number of processes."""
    return _state.count


def is_writer() -> bool:
    """Returns True in the process that writes the files of the run."""
    return index() == 0


def own_part(size: int) -> range:
    """Returns the part of `size` items that this process writes; parts differ by at most one."""
    return range(size * index() // count(), size * (index() + 1) // count())


def gather(value: Any, channel: str = "main") -> list[Any]:
    """Returns the values of all processes, by process number.

    All processes must call `gather` and `broadcast` in the same order on a channel. Threads that
    run at the same time need different channels. The types of a value are those of `Store`.

    Raises:
      ProcessesError: Another process failed or does not answer.
    """
    if count() == 1:
        return [value]
    number = _next(channel)
    _store().put(f"{channel}/{number}/{index()}", [value])
    values = [
        value if i == index() else _wait(f"{channel}/{number}/{i}", i) for i in range(count())
    ]
    # All processes have called `gather` again, so all have read the values of the call before.
    _store().delete(f"{channel}/{number - 1}/{index()}")
    return values


def broadcast(value: Any, channel: str = "main") -> Any:
    """Returns the value of process 0; arguments and errors as of `gather`."""
    if count() == 1:
        return value
    number = _next(channel)
    key = f"{channel}/{number}/0"
    if index() == 0:
        _store().put(key, [value])
        _store().delete(f"{channel}/{number - 1000}/0")  # no process is so far behind
        return value
    return _wait(key, 0)


def offer(key: str, value: Any) -> None:
    """Stores a value that other processes may `fetch` until it is withdrawn; the key is new."""
    _store().put(f"offer/{key}", [value])


def withdraw(key: str) -> None:
    """Deletes an offered value."""
    _store().delete(f"offer/{key}")


def fetch(key: str, sender: int) -> Any:
    """Returns a value that process `sender` offers; errors as of `gather`."""
    return _wait(f"offer/{key}", sender)


@contextlib.contextmanager
def writer_first() -> Iterator[None]:
    """Lets process 0 leave the block before the other processes enter it."""
    if not is_writer():
        gather(None, "order")
    yield
    if is_writer():
        gather(None, "order")


def check_equal(facts: Mapping[str, str]) -> None:
    """Raises ProcessesError with both values if a fact differs from that of another process."""
    for i, others in enumerate(gather(dict(facts), "facts")):
        for name in sorted(facts.keys() | others.keys()):
            here, there = facts.get(name, "absent"), others.get(name, "absent")
            if here != there:
                raise ProcessesError(
                    f"processes {index()} and {i} differ in {name}: {here} here, {there} there. "
                    "Start all processes with the same command, code and run folder"
                )


def request_stop() -> None:
    """Tells all processes to stop at their next common step."""
    if count() > 1 and not _state.is_stop_known:
        _state.is_stop_known = True
        _store().put(_STOP, True, is_shared=True)


def is_stop_requested() -> bool:
    """Returns True if a process has called `request_stop`; asks at most once a second."""
    if count() == 1 or _state.is_stop_known:
        return _state.is_stop_known
    now = time.monotonic()
    with _state.lock:
        is_due = now >= _state.next_poll
        if is_due:
            _state.next_poll = now + _POLL_S
    if is_due:
        _state.is_stop_known = _store().get(_STOP) is not None
    return _state.is_stop_known


@contextlib.contextmanager
def announcing_failures() -> Iterator[None]:
    """If the block fails, ends the waits of the other processes with the message of the error."""
    try:
        yield
    except BaseException as error:
        if count() > 1 and not isinstance(error, ProcessesError):
            text = f"process {index()}: {type(error).__name__}: {error}"
            with contextlib.suppress(ProcessesError):
                _store().put(_FAILED, text, is_shared=True)
        raise


def _store() -> Store:
    assert _state.store is not None, "several processes without a store"
    return _state.store


def _next(channel: str) -> int:
    with _state.lock:
        _state.calls[channel] += 1
        return _state.calls[channel]


def _wait(key: str, sender: int) -> Any:
    """Waits for a value of another process, which is stored as a list of one value."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            found = _store().get(key, _POLL_S)
        except ProcessesError as error:
            raise ProcessesError(f"process {sender} is lost: {error}") from error
        if found is not None:
            return found[0]
        failure = _store().get(_FAILED)
        if failure is not None:
            raise ProcessesError(f"stopped because of another process. {failure}")
        if time.monotonic() > deadline:
            raise ProcessesError(
                f"process {sender} has not answered for {_PATIENCE_S / 60:.0f} minutes ({key}); "
                "look at its output"
            )
