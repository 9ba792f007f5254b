"""Connection of the processes of a run through JAX's distributed runtime."""

import re
import zlib
from typing import Any

import flax.serialization
import jax
from absl import logging
from jax._src import clusters, distributed

from agentgym_jax.mesh import processes
from agentgym_jax.mesh.processes import ProcessesError

# A process that sends no heartbeat for this time is lost, and the runtime ends all others.
HEARTBEAT_TIMEOUT_S = 30
_SHUTDOWN_TIMEOUT_S = 15


def connect(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Connects this process to the others; must be called before the first use of a device.

    `coordinator` is the address `host:port` at which process 0 listens. Without arguments, a cluster
    that JAX detects (Cloud TPU, GKE, Slurm, MPI) determines them. If there is none, the run has one
    process.

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
    join_connected()
    logging.info("process %d of %d", processes.index(), processes.count())


def join_connected() -> None:
    """Joins the processes that JAX has connected, by `connect` or by the caller's own code."""
    runtime = distributed.global_state
    if (runtime.num_processes or 1) > 1 and processes.count() == 1:
        processes.join(_RuntimeStore(runtime.client), runtime.process_id, runtime.num_processes)


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


def pack_value(value: Any) -> bytes:
    """Returns the bytes of a value in the store."""
    return zlib.compress(flax.serialization.msgpack_serialize({"value": value}), level=1)


def unpack_value(packed: bytes) -> Any:
    """Returns the value of `pack_value`."""
    return flax.serialization.msgpack_restore(zlib.decompress(packed))["value"]


class _RuntimeStore:
    """`processes.Store` in the runtime's coordinator; values are packed by msgpack and zlib."""

    def __init__(self, client: Any):
        self._client = client

    def put(self, key: str, value: Any, *, is_shared: bool = False) -> None:
        """Implements `Store.put`."""
        try:
            self._client.key_value_set_bytes(key, pack_value(value), allow_overwrite=is_shared)
        except jax.errors.JaxRuntimeError as error:
            raise ProcessesError(str(error)) from error

    def delete(self, key: str) -> None:
        """Implements `Store.delete`."""
        try:
            self._client.key_value_delete(key)
        except jax.errors.JaxRuntimeError as error:
            raise ProcessesError(str(error)) from error

    def get(self, key: str, timeout_s: float = 0.0) -> Any:
        """Implements `Store.get`."""
        try:
            if timeout_s:
                packed = self._client.blocking_key_value_get_bytes(key, int(timeout_s * 1000))
            else:
                packed = self._client.key_value_try_get_bytes(key)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error) or "NOT_FOUND" in str(error):
                return None
            raise ProcessesError(str(error)) from error
        return unpack_value(packed)
