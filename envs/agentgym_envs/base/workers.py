"""The server's side of its worker processes: starts, requests, timeouts, kills, replacements."""

import asyncio
import json
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.messages import Reply

_LOGGER = logging.getLogger(__name__)

# frame format of short messages in multiprocessing.connection.Connection, which the worker uses
_LENGTH = struct.Struct("!i")
_STACK_SECONDS = 0.5  # time for a worker to write its stack
_STOP_SECONDS = 5.0  # time limit for a worker to close its environments


class WorkerDied(Exception):
    """Error for a process that ended before it answered."""


class WorkerHung(Exception):
    """Error for a process that did not answer in time and was killed."""


class _Channel(asyncio.Protocol):
    """Connection to a worker that delivers whole messages, with one pending answer at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < _LENGTH.size:
            return
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) >= end and self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerDied())

    async def receive(self, timeout_s: float) -> Any:
        """Waits for the next message.

        Raises:
          WorkerDied: The other side is gone.
          WorkerHung: The other side sent no message in time.
        """
        if not self.is_open:
            raise WorkerDied
        loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        alarm = loop.call_later(timeout_s, _fail, answer)
        try:
            self.data_received(b"")  # parses bytes that arrived before this call
            return pickle.loads(await answer)
        finally:
            alarm.cancel()
            self._answer = None

    def send(self, message: bytes) -> None:
        if self._transport is None or not self.is_open:
            raise WorkerDied
        self._transport.write(_LENGTH.pack(len(message)) + message)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _fail(answer: asyncio.Future) -> None:
    if not answer.done():
        answer.set_exception(WorkerHung())


class Worker:
    """A worker process, replaced when it dies. Callers hold `lock` while they await a method.

    Args:
      start_seconds: Time limit for a process to become ready.

    Attributes:
      lock: Lock that is held during a request, because a worker serves one at a time.
      generation: Number of processes started so far.
      sessions: Number of sessions assigned to this worker.
    """

    def __init__(
        self,
        environment_module: str,
        compat: bool,
        start_seconds: float,
        options: Mapping[str, Any] | None = None,
    ):
        self._environment_module = environment_module
        self._compat = compat
        self._start_seconds = start_seconds
        self._options = dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._channel = _Channel()
        self._is_stopped = False  # True once the server ends
        self.lock = asyncio.Lock()
        self.generation = 0
        self.sessions = 0

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """True if the current process is connected."""
        return self._channel.is_open

    async def ensure_running(self) -> None:
        """Starts a process unless one is running.

        Raises:
          SetupError: The environment cannot run here, its process does not become ready, or the
            server ends.
        """
        if self._is_stopped:
            raise SetupError("the server ends")
        if self._channel.is_open:
            return
        await self.kill()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = self._spawn(theirs.fileno())
        self._channel = _Channel()
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=ours)
        self.generation += 1
        try:
            first = await self._channel.receive(self._start_seconds)
        except (WorkerDied, WorkerHung) as error:
            await self.kill()
            how = "ended" if isinstance(error, WorkerDied) else "did not answer"
            raise SetupError(
                f"a worker process of {self._environment_module} {how} before it was ready; its last "
                "output is above"
            ) from error
        if first is not None:
            await self.kill()
            raise SetupError(first)

    async def ask(self, operation: str, session_id: int, argument: Any, timeout_s: float) -> Reply:
        """Returns the worker's answer to one request.

        Raises:
          WorkerDied, WorkerHung: No answer arrived; the process and its sessions are gone.
        """
        try:
            self._channel.send(pickle.dumps((operation, session_id, argument)))
            return await self._channel.receive(timeout_s)
        except BaseException as error:  # also cancellation: a late answer would confuse the next
            try:
                if isinstance(error, WorkerHung):
                    await self._show_stack()
            finally:
                await self.kill()
            if isinstance(error, WorkerDied) and self._process is not None:
                pid, status = self._process.pid, self._process.returncode
                _LOGGER.error("worker %d ended during %s with status %s", pid, operation, status)
            raise

    async def _show_stack(self) -> None:
        """Makes a process that hangs write its stack to stderr."""
        if self._process is not None and self._process.returncode is None:
            _LOGGER.error("worker %d hangs; its stack follows", self._process.pid)
            os.kill(self._process.pid, signal.SIGUSR1)
            await asyncio.sleep(_STACK_SECONDS)

    async def kill(self) -> None:
        """Kills the process and its children; does nothing if there is no process."""
        self._channel.close()
        self._channel.is_open = False
        if self._process is not None and self._process.returncode is None:
            # Children in the group can outlive a dead leader. The group id is not reused before
            # `wait`.
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # no process of the group is left
            await asyncio.to_thread(self._process.wait)

    async def stop(self) -> None:
        """Closes the socket, so that the process exits; kills the process if it does not.

        No other process is started afterwards, not even for a request that still waits.
        """
        self._is_stopped = True
        self._channel.close()
        self._channel.is_open = False
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _LOGGER.warning("worker %d did not end when asked; killed", self._process.pid)
        await self.kill()

    def _spawn(self, fd: int) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "agentgym_envs.base.worker",
            self._environment_module,
            str(fd),
        ]
        command += ["--log-level", logging.getLevelName(logging.getLogger().getEffectiveLevel())]
        command += ["--compat"] if self._compat else []
        command += ["--options", json.dumps(self._options)] if self._options else []
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,  # simulator output must not mix with the server's readiness line
            pass_fds=[fd],
            start_new_session=True,  # a separate group, to be killed with its children
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
