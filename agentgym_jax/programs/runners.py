"""Starts agent programs: Python functions in threads, or commands as processes."""

import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection
from typing import IO, Any, Protocol

from agentgym_jax.programs.task import AgentTask, EpisodeOverError, ProgramResult, parse_result

# Replaces itself by the command. Its child process waits until the trainer closes the pipe, by
# intent or by its own end (kill -9 included), and then kills the process group.
_LAUNCHER = """
import os, signal, sys
if os.fork() == 0:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
# Names of environment variables with secrets.
_SECRET = re.compile("(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?(_|$)", re.IGNORECASE)
_SHOWN = 2000  # characters of a command's error output in an error message


class ProgramError(Exception):
    """The program failed, or returned something else than a reward."""


class RunningProgram(Protocol):
    """A started program."""

    def poll(self) -> ProgramResult | ProgramError | None:
        """Returns the result or the failure of the program; None while it runs."""

    def stop(self) -> None:
        """Ends the program. A thread cannot be ended: its next request fails instead."""


Start = Callable[[AgentTask], RunningProgram]


def load_function(path: str) -> Callable[[AgentTask], Any]:
    """Imports `package.module:function`; raises ValueError if there is none, or its module fails."""
    module, separator, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name) if separator else None
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ValueError(f"{path!r}: {error}") from error
    except (Exception, SystemExit) as error:  # the module is the user's program
        last = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{last.filename}, line {last.lineno}: {type(error).__name__}: {error}"
        raise ValueError(f"{path!r}: {reason}") from error
    if not callable(function):
        raise ValueError(f"{path!r} names no function; expected package.module:function")
    return function


class FunctionProgram:
    """Python function that runs in a daemon thread."""

    def __init__(self, function: Callable[[AgentTask], Any], task: AgentTask):
        self._result: ProgramResult | ProgramError | None = None
        self._thread = threading.Thread(
            target=self._run, args=(function, task), name="program", daemon=True
        )
        self._thread.start()

    def poll(self) -> ProgramResult | ProgramError | None:
        """Implements `RunningProgram.poll`."""
        return self._result

    def stop(self) -> None:
        """Implements `RunningProgram.stop`."""

    def _run(self, function: Callable[[AgentTask], Any], task: AgentTask) -> None:
        try:
            self._result = parse_result(function(task))
        except EpisodeOverError as error:
            self._result = ProgramError(str(error))
        except BaseException as error:  # noqa: BLE001 - the collector hears of every failure
            self._result = ProgramError(f"{type(error).__name__}: {error}")


class CommandProgram:
    """Command that runs as a process group; its last line of output is the result as JSON.

    The group ends with this process, however this process ends.
    """

    def __init__(self, command: str, task: AgentTask, *, variables: Collection[str] = ()):
        """Starts the command; raises FileNotFoundError if there is no such program.

        The command gets the environment without secrets, except those named in `variables`.
        """
        arguments = shlex.split(command)
        if not arguments or shutil.which(arguments[0]) is None:
            raise FileNotFoundError(f"no program {' '.join(arguments[:1])!r} that can be executed")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in variables or not _SECRET.search(name)
        }
        self._output = tempfile.TemporaryFile()
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _LAUNCHER, *arguments],
            env=inherited | task.to_environ(),
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._errors,
            start_new_session=True,
        )

    def poll(self) -> ProgramResult | ProgramError | None:
        """Implements `RunningProgram.poll`."""
        status = self._process.poll()
        if status is None:
            return None
        if status != 0:
            tail = _tail(self._errors).strip() or "no error output"
            return ProgramError(f"the command ended with status {status}: {tail}")
        lines = _tail(self._output).strip().splitlines()
        try:
            return parse_result(json.loads(lines[-1]) if lines else None)
        except ValueError as error:
            return ProgramError(f"last line of output: {error}")

    def stop(self) -> None:
        """Implements `RunningProgram.stop`; kills the whole process group."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._output.close()
        self._errors.close()


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _SHOWN))
    return file.read().decode(errors="replace")
