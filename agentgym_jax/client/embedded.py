"""Environment servers as child processes of the training process.

A server is started only by its command line, so a training machine runs the same code as an
environment machine. The server ends when `EmbeddedServers` is stopped. It also ends after a `kill
-9` of the trainer, because it watches its parent process.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

_POLL_S = 0.05
_LOG_TAIL_BYTES = 4000


def option_arguments(options: Mapping[str, Any]) -> list[str]:
    """Converts the options of an environment to command-line arguments of agentgym_envs."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    return [f"--option={name}={text}" for name, text in texts.items()]


class ServerFailed(RuntimeError):
    """An embedded server did not start. The message has the last line of the server's output."""


def last_words(text: str) -> str:
    """Returns the last line of a program's output, which usually explains why the program ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(nothing)"


class _Server:
    """One child process and its log files.

    `target` is the name of the environment or module on the command line.
    """

    def __init__(
        self, environment: str, target: str, folder: pathlib.Path, arguments: Sequence[str]
    ):
        self.environment = environment
        self.port = 0  # the first start sets the port, and later starts reuse it
        self.process: subprocess.Popen[bytes] | None = None
        self.stdout = folder / f"{environment}.stdout.log"
        self.stderr = folder / f"{environment}.stderr.log"
        self._target = target
        self._arguments = tuple(arguments)
        # The line can name any environment, because the client checks the name in the server's
        # spec.
        self._ready = re.compile(r"^agentgym_envs \S+ ready on http://\S+:(\d+)\s*$", re.M)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        """Starts the process.

        The output of the process is written to files, because a pipe could fill up or break.
        """
        command = [sys.executable, "-m", "agentgym_envs", self._target]
        command += ["--port", str(self.port), "--parent-pid", str(os.getpid()), *self._arguments]
        with self.stdout.open("wb") as stdout, self.stderr.open("ab") as stderr:
            # The server runs in a separate process session, so Ctrl-C reaches only the trainer. The
            # trainer then stops its servers.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def wait_ready(self, patience_s: float) -> None:
        """Waits until the server prints its address.

        Every line that the server writes restarts the timeout. A server that builds an index at its
        first start reports its progress in this way.
        """
        written, deadline = -1, 0.0
        while True:
            size = self.stderr.stat().st_size
            if size != written:
                written, deadline = size, time.monotonic() + patience_s
            # checked before the output is read, so that the last lines are included
            ended = not self.is_alive()
            ready = self._ready.search(self.stdout.read_text(errors="replace"))
            if ready and not ended:
                self.port = int(ready.group(1))
                return
            if ended:
                status = "no process" if self.process is None else self.process.returncode
                raise ServerFailed(self._failure(f"ended with status {status} before it was ready"))
            if time.monotonic() > deadline:
                raise ServerFailed(self._failure("was not ready in time; raise start_timeout_s"))
            time.sleep(_POLL_S)

    def terminate(self) -> None:
        if self.is_alive() and self.process is not None:
            self.process.terminate()

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

    def _failure(self, what: str) -> str:
        tail = self.stderr.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        logging.info("the %s server wrote:\n%s", self.environment, tail)
        return f"the embedded {self.environment} server {what}. It wrote: {last_words(tail)}"


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
        others = {} if modules is None else modules
        self._targets = {name: others[name] if name in others else name for name in environments}
        self._log_folder = None if log_folder is None else pathlib.Path(log_folder)
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._arguments = {name: list(arguments) for name in environments}
        for name, chosen in (options or {}).items():
            self._arguments[name] += option_arguments(chosen)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._servers: dict[str, _Server] = {}

    def __enter__(self) -> "EmbeddedServers":
        if self._log_folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="agentgym_envs_")
            folder = pathlib.Path(self._temporary.name)
        else:
            folder = self._log_folder
            folder.mkdir(parents=True, exist_ok=True)
        self._servers = {
            name: _Server(name, target, folder, self._arguments[name])
            for name, target in self._targets.items()
        }
        try:
            self._start(list(self._servers.values()))
        except BaseException:  # a Ctrl-C during the wait must leave no process behind either
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def urls(self) -> Mapping[str, str]:
        """Returns the base URL of each server by environment name.

        A restart does not change the URL.
        """
        return {name: server.url for name, server in self._servers.items()}

    @property
    def pids(self) -> Mapping[str, int]:
        """Returns the process id of each server by environment name."""
        return {n: s.process.pid for n, s in self._servers.items() if s.process is not None}

    def ensure_alive(self) -> list[str]:
        """Restarts dead servers on their old ports; returns the environment names of the restarted
        servers.

        The caller must report each restarted server to the pool (`EnvPool.invalidate`), because the
        server's sessions are lost.
        """
        dead = [server for server in self._servers.values() if not server.is_alive()]
        for server in dead:
            logging.warning("the %s server has ended; starting it again", server.environment)
        self._start(dead)
        return [server.environment for server in dead]

    def stop(self) -> None:
        """Stops all servers; a second call does nothing."""
        for server in self._servers.values():
            server.terminate()
        deadline = time.monotonic() + self._stop_timeout_s
        for server in self._servers.values():
            server.wait_ended(deadline)
        self._servers = {}
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _start(self, servers: Sequence[_Server]) -> None:
        """Starts servers in parallel and waits until all of them are ready."""
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_ready(self._start_timeout_s)
            logging.info("%s server ready on %s", server.environment, server.url)
