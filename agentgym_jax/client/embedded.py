"""Environment servers as child processes of the training process.

Such a server also ends after a `kill -9` of the trainer, because it watches its parent process.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

_POLL_S = 0.05
_LOG_TAIL_BYTES = 4000
# The pattern accepts any environment name; the client checks the name in the server's `/spec`.
_READY = re.compile(r"^agentgym_envs \S+ ready on http://\S+:(\d+)\s*$", re.M)


def option_arguments(options: Mapping[str, Any]) -> list[str]:
    """Converts the options of an environment to command-line arguments of agentgym_envs."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    return [f"--option={name}={text}" for name, text in texts.items()]


class ServerFailed(RuntimeError):
    """A process of the environment package failed. The message has the last line of its output."""


def last_words(text: str) -> str:
    """Returns the last line of a program's output, which usually explains why the program ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(nothing)"


class _Server:
    """One child process and its log files."""

    def __init__(self, environment: str, folder: pathlib.Path, arguments: Sequence[str]):
        self.environment = environment
        self.port = 0  # the first start sets the port, and later starts reuse it
        self.process: subprocess.Popen[bytes] | None = None
        # the output goes to files, because a pipe could fill up or break
        self.stdout = folder / f"{environment}.stdout.log"
        self.stderr = folder / f"{environment}.stderr.log"
        self._arguments = tuple(arguments)

    def launch(self) -> None:
        command = [sys.executable, "-m", "agentgym_envs", *self._arguments]
        command += ["--port", str(self.port), "--parent-pid", str(os.getpid())]
        with self.stdout.open("wb") as stdout, self.stderr.open("ab") as stderr:
            # In a separate process session, the server does not receive the trainer's Ctrl-C. The
            # trainer then stops its servers.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float) -> None:
        """Waits until the server prints its address; any output on stderr restarts the timeout."""
        assert self.process is not None  # `launch` has set it
        written, deadline = -1, 0.0
        while True:
            size = self.stderr.stat().st_size
            if size != written:
                written, deadline = size, time.monotonic() + timeout_s
            # checked before the output is read, so that the last lines are included
            status = self.process.poll()
            ready = _READY.search(self.stdout.read_text(errors="replace"))
            if status is not None:
                raise self._failure(f"ended with status {status} before it was ready")
            if ready:
                self.port = int(ready.group(1))
                return
            if time.monotonic() > deadline:
                raise self._failure("was not ready in time; raise start_timeout_s")
            time.sleep(_POLL_S)

    def wait_ended(self, deadline: float) -> None:
        """Waits until a terminated process has ended, and kills it at the deadline."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logging.warning("the %s server did not end when asked; killed", self.environment)
            self.process.kill()
            self.process.wait()

    def _failure(self, what: str) -> ServerFailed:
        tail = self.stderr.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        logging.info("the %s server wrote:\n%s", self.environment, tail)
        return ServerFailed(
            f"the embedded {self.environment} server {what}. It wrote: {last_words(tail)} (log: "
            f"{self.stderr})"
        )


class EmbeddedServers:
    """Runs one server per environment while the `with` block lasts.

    Args:
      environments: Names of environments, as for `python -m agentgym_envs NAME`.
      modules: Module with `make_served_environment()` by environment name, for environments that
          this project does not ship.
      options: Options of `make_served_environment()` by environment name.
      log_folder: Folder for the servers' output; None selects a temporary folder.
      start_timeout_s: Maximum time without output before a server is ready, in seconds.
      stop_timeout_s: Time from the request to end until the kill, in seconds.
      arguments: Additional arguments of every server's command line, such as `--capacity=64`.
    """

    def __init__(
        self,
        environments: Sequence[str],
        *,
        modules: Mapping[str, str] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        log_folder: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 120.0,
        stop_timeout_s: float = 10.0,
        arguments: Sequence[str] = (),
    ):
        if len(set(environments)) != len(environments):
            raise ValueError(f"an environment is listed twice: {list(environments)}")
        modules, options = modules or {}, options or {}
        self._arguments = {
            name: [modules.get(name, name), *arguments, *option_arguments(options.get(name, {}))]
            for name in environments
        }
        self._log_folder = log_folder
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._temporary = contextlib.ExitStack()
        self._servers: dict[str, _Server] = {}

    def __enter__(self) -> "EmbeddedServers":
        folder = self._log_folder
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="agentgym_envs_")
            folder = self._temporary.enter_context(temporary)
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._servers = {
            name: _Server(name, folder, arguments) for name, arguments in self._arguments.items()
        }
        try:
            self._start(self._servers.values())
        except BaseException:  # a Ctrl-C during the wait must leave no process behind either
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def urls(self) -> Mapping[str, str]:
        """Returns the base URL of each server by environment name; a restart does not change it."""
        return {name: f"http://127.0.0.1:{s.port}" for name, s in self._servers.items()}

    @property
    def logs(self) -> Mapping[str, pathlib.Path]:
        """Returns the file with each server's messages by environment name."""
        return {name: server.stderr for name, server in self._servers.items()}

    @property
    def pids(self) -> Mapping[str, int]:
        """Returns the process id of each server by environment name."""
        return {n: s.process.pid for n, s in self._servers.items() if s.process is not None}

    def ensure_alive(self) -> list[str]:
        """Restarts dead servers on their old ports and returns their environment names.

        The caller must pass each name to `EnvPool.invalidate`, because the sessions are lost.
        """
        servers = self._servers.values()
        dead = [s for s in servers if s.process is None or s.process.poll() is not None]
        for server in dead:
            logging.warning("the %s server has ended; starting it again", server.environment)
        self._start(dead)
        return [server.environment for server in dead]

    def stop(self) -> None:
        """Stops all servers; a second call does nothing."""
        for server in self._servers.values():
            if server.process is not None:
                server.process.terminate()
        deadline = time.monotonic() + self._stop_timeout_s
        for server in self._servers.values():
            server.wait_ended(deadline)
        self._servers = {}
        self._temporary.close()

    def _start(self, servers: Iterable[_Server]) -> None:
        """Starts servers in parallel and waits until all of them are ready."""
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_ready(self._start_timeout_s)
            logging.info("%s server ready on port %d", server.environment, server.port)
