"""Agreement between the processes of a run on several hosts.

All processes execute the same program. Host values that may differ between them, such as sampled
episodes, pass through `gather` or `broadcast`, so that all later decisions are the same everywhere.
Process 0 writes the files of the run. With one process, all functions return at once.

Values travel through the key-value store of JAX's distributed runtime. Unlike collectives on
devices, it can be used by a rollout in the background while the learner computes.
"""

import collections
import contextlib
import re
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import flax.serialization
import jax
from absl import logging
from jax._src import clusters, distributed

# A process that sends no heartbeat for this time is lost, and the runtime ends all others.
HEARTBEAT_TIMEOUT_S = 30
_SHUTDOWN_TIMEOUT_S = 15
# Longest wait for a value of another process. Rollouts of different processes may differ by the
# time in which an environment is unavailable.
_PATIENCE_S = 3600.0
_POLL_S = 1.0
_MS = 1000
_FAILED = "failed"
_STOP = "stop"


class ProcessesError(RuntimeError):
    """Another process failed, differs from this one, or does not answer."""


class _State:
    """Counters of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: collections.Counter[str] = collections.Counter()
        self.next_poll = 0.0
        self.is_stop_known = False


_state = _State()


def start(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Connects this process to the others; must be called before the first use of a device.

    Without arguments, a cluster that JAX detects (Cloud TPU, GKE, Slurm, MPI) determines them. If
    there is none, the run has one process.

    Args:
      coordinator: Address `host:port` at which process 0 listens.
      num_processes: Number of processes.
      process_id: Number of this process, from 0.

    Raises:
      ProcessesError: Only some arguments are given, they are invalid, or no connection is made.
    """
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        if not _is_in_cluster():
            return
    elif missing:
        raise ProcessesError(
            f"--{missing[0]} is missing: give all of --{', --'.join(given)} or none"
        )
    elif not re.fullmatch(r".+:\d+", str(coordinator)):
        raise ProcessesError(f"--coordinator={coordinator}: expected HOST:PORT")
    elif not 0 <= (process_id or 0) < (num_processes or 0):
        raise ProcessesError(
            f"--process_id={process_id}: expected a number from 0 to below "
            f"--num_processes={num_processes}"
        )
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
            shutdown_timeout_seconds=_SHUTDOWN_TIMEOUT_S,
        )
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ProcessesError(
            f"the processes did not connect: {reason}. Start all of them with the same "
            "--coordinator and --num_processes, each with its own --process_id, and check that the "
            "port is free and reachable"
        ) from error
    logging.info("process %d of %d", index(), count())


def _is_in_cluster() -> bool:
    """Returns True if JAX detects a cluster with more than one process."""
    for cluster in clusters.ClusterEnv._cluster_types:
        if not cluster.opt_in_only_method and cluster.is_env_present():
            try:
                return cluster.get_process_count() > 1
            except (RuntimeError, ValueError, KeyError) as error:
                text = "%s does not tell the number of processes (%s): this run has one"
                logging.warning(text, cluster.__name__, error)
                return False
    return False


def index() -> int:
    """Returns the number of this process, from 0."""
    return distributed.global_state.process_id or 0


def count() -> int:
    """Returns the number of processes."""
    return distributed.global_state.num_processes or 1


def is_writer() -> bool:
    """Returns True in the process that writes the files of the run."""
    return index() == 0


def own_part(size: int) -> range:
    """Returns the part of `size` items that this process writes; parts differ by at most one."""
    return range(size * index() // count(), size * (index() + 1) // count())


def gather(value: Any, channel: str = "main") -> list[Any]:
    """Returns the values of all processes, by process number.

    All processes must call `gather` and `broadcast` in the same order on a channel. Threads that
    run at the same time need different channels.

    Args:
      value: Numbers, strings, bytes, NumPy arrays, and lists and dictionaries of these.
      channel: Name of the sequence of calls.

    Raises:
      ProcessesError: Another process failed or does not answer.
    """
    if count() == 1:
        return [value]
    number = _next(channel)
    packed = zlib.compress(flax.serialization.msgpack_serialize({"value": value}), level=1)
    _set(f"{channel}/{number}/{index()}", packed)
    values = [
        value if i == index() else _decode(_wait(f"{channel}/{number}/{i}", i))
        for i in range(count())
    ]
    # All processes have called `gather` again, so all have read the values of the call before.
    _delete(f"{channel}/{number - 1}/{index()}")
    return values


def broadcast(value: Any, channel: str = "main") -> Any:
    """Returns the value of process 0; arguments and errors as of `gather`."""
    if count() == 1:
        return value
    number = _next(channel)
    key = f"{channel}/{number}/0"
    if index() == 0:
        _set(key, zlib.compress(flax.serialization.msgpack_serialize({"value": value}), level=1))
        _delete(f"{channel}/{number - 1000}/0")  # no process is so far behind
        return value
    return _decode(_wait(key, 0))


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
        _set(_STOP, b"1", is_shared=True)


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
        _state.is_stop_known = _try_get(_STOP) is not None
    return _state.is_stop_known


@contextlib.contextmanager
def announcing_failures() -> Iterator[None]:
    """If the block fails, ends the waits of the other processes with the message of the error."""
    try:
        yield
    except BaseException as error:
        if count() > 1 and not isinstance(error, ProcessesError):
            text = f"process {index()}: {type(error).__name__}: {error}"
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                _set(_FAILED, text.encode(), is_shared=True)
        raise


def _client() -> Any:
    return distributed.global_state.client


def _next(channel: str) -> int:
    with _state.lock:
        _state.calls[channel] += 1
        return _state.calls[channel]


def _set(key: str, value: bytes, *, is_shared: bool = False) -> None:
    """Stores a value; of a shared key, which several processes may set, the last value remains."""
    _client().key_value_set_bytes(key, value, allow_overwrite=is_shared)


def _delete(key: str) -> None:
    _client().key_value_delete(key)


def _try_get(key: str) -> bytes | None:
    try:
        return _client().key_value_try_get_bytes(key)
    except jax.errors.JaxRuntimeError as error:
        if "NOT_FOUND" in str(error):
            return None
        raise


def _wait(key: str, sender: int) -> bytes:
    """Waits for a value of another process."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _client().blocking_key_value_get_bytes(key, int(_POLL_S * _MS))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise ProcessesError(f"process {sender} is lost: {error}") from error
        failure = _try_get(_FAILED)
        if failure is not None:
            raise ProcessesError(f"stopped because of another process. {failure.decode()}")
        if time.monotonic() > deadline:
            raise ProcessesError(
                f"process {sender} has not answered for {_PATIENCE_S / 60:.0f} minutes ({key}); "
                "look at its output"
            )


def _decode(packed: bytes) -> Any:
    return flax.serialization.msgpack_restore(zlib.decompress(packed))["value"]
