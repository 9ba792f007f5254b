"""Runs Python programs of an agent in processes that can only compute and print.

`program_child.py` sets the limits that the kernel enforces. This module limits the time on the clock
and the output, and ends the process in every case.
"""

import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.searchqa.program_child import CONFINED, CPU_SECONDS, MEMORY_BYTES

CLOCK_SECONDS = 10.0  # twice the limit on CPU time, because a process may wait for a busy core
OUTPUT_BYTES = 4096

NOTHING = "The program printed nothing."
STOPPED = f"The program was stopped. It may use {CPU_SECONDS} seconds and {MEMORY_BYTES >> 20} MiB of memory."
CRASHED = "The program crashed the interpreter."
CUT = f"The program was stopped, because it printed more than {OUTPUT_BYTES} bytes."

_CHILD = pathlib.Path(__file__).with_name("program_child.py")
_PROBE = """\
import os
for name, arguments in [("listdir", ["/"]), ("pipe", []), ("kill", [os.getpid(), 0])]:
    try:
        getattr(os, name)(*arguments)
        print(name)
    except PermissionError:
        pass
print("end")
"""


def check() -> None:
    """Checks that this machine can confine programs.

    Raises:
      SetupError: It cannot, so no program must be run here.
    """
    problem = "it is not Linux"
    if sys.platform == "linux":
        try:
            found = run(_PROBE)
        except EnvironmentFault as fault:
            problem = fault.message
        else:
            if found == "end":
                return
            problem = f"a test program that should be refused printed {found[:200]!r}"
    raise SetupError(
        "searchqa: this machine cannot confine programs, which takes Linux with seccomp filters on "
        f"x86-64 or aarch64: {problem}. Leave out python=true"
    )


def run(program: str) -> str:
    """Executes a program; returns its output, with a traceback or the limit that it reached.

    No process and no file is left. Strings have the same order in sets and `random` the same seed
    in every run, so a program that does not look at clocks or addresses prints the same again.

    Raises:
      EnvironmentFault: SIMULATOR if the process cannot be started or confined, which no program can
        bring about.
    """
    deadline = time.monotonic() + CLOCK_SECONDS
    try:
        with tempfile.TemporaryFile() as source:
            source.write(program.encode("utf-8", "replace"))
            source.seek(0)
            process = subprocess.Popen(
                # isolated as with -I, which would also ignore the hash seed
                [sys.executable, "-s", "-P", "-S", str(_CHILD), str(os.getpid())],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PYTHONHASHSEED": "0"},
                cwd="/",
            )
    except OSError as error:
        raise EnvironmentFault(
            ErrorKind.SIMULATOR, f"searchqa: the process of a program cannot be started: {error}"
        ) from error
    with process:
        try:
            output, has_ended = _read(process, deadline)
        finally:
            process.kill()
    is_confined = output.startswith(CONFINED)
    output = output.removeprefix(CONFINED)
    text = output[:OUTPUT_BYTES].decode("utf-8", "replace").rstrip()
    if not is_confined:
        why = f"cannot be confined: {text}" if has_ended else f"needs {CLOCK_SECONDS:g} s to start"
        raise EnvironmentFault(ErrorKind.SIMULATOR, f"searchqa: the process of a program {why}")
    if len(output) > OUTPUT_BYTES:
        end = CUT
    elif not has_ended or process.returncode == -9:
        end = STOPPED
    else:
        end = CRASHED if process.returncode < 0 else ""
    return "\n".join(part for part in (text, end) if part) or NOTHING


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """Returns the output up to its limit, and True if the process closed it before the deadline."""
    assert process.stdout is not None
    file = process.stdout.fileno()
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    output = b""
    while len(output) <= len(CONFINED) + OUTPUT_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            return output, False
        piece = os.read(file, 65536)
        if not piece:
            return output, True
        output += piece
    return output, True
