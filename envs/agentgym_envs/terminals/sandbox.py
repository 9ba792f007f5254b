"""Sandboxes: one shell command in a fresh set of processes over the files of an episode.

A `Sandbox` opens a `Machine` for each episode. `bubblewrap.py` and `containers.py` implement both.
"""

import contextlib
import dataclasses
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from agentgym_envs.processes import family

if TYPE_CHECKING:
    from agentgym_envs.terminals.tasks import Task

MIB = 1 << 20
OUTPUT_DISK_MIB = 8  # a command that prints more gets write errors
GRACE_S = 10  # time to unpack and pack the files, in addition to the time of the command
HOME = "/home/agent"
_FIRST_POLL_S, _POLL_S = 0.2, 0.1  # total memory is compared with its limit at these times
_SAVED = b"\nsaved\n"

# Arguments: seconds, bytes of output, size of the first archive, size of the second, folder of work,
# file of the output, reported file, 1 to save files, command, folders of the agent. The first archive
# belongs to the agent, so only its own folders are unpacked. Limits are set in a subshell, because
# they must not hit the commands after it. `kill` spares this shell and process 1.
LAUNCHER = r"""
exec 3>&1 >/dev/null 2>&1
seconds=$1 shown=$2 first=$3 second=$4 work=${5:-$PWD} output=$6 report=${7:-$6} keeps=$8 command=$9
shift 9
cd /
if [ "$first" -gt 0 ]; then head -c "$first" | tar -x -p --no-same-owner -f - "${@#/}" || exit 70; fi
if [ "$second" -gt 0 ]; then tar -x -p --no-same-owner -f - || exit 70; fi
cd "$work"
(
  for limit in $LIMITS; do ulimit ${limit/=/ }; done
  unset LIMITS
  exec timeout -s KILL "$seconds" bash -c "$command" </dev/null >"$output" 2>&1 3>&-
)
status=$?
kill -9 -1
cd /
[ -f "$report" ] && [ ! -L "$report" ] || report=/dev/null
size=$(stat -L -c %s "$report")
printf '%s %s\n' "$status" "$size" >&3
if [ "$size" -le "$shown" ]; then head -c "$size" "$report" >&3
else head -c $((shown / 2)) "$report" >&3; tail -c $((shown / 2)) "$report" >&3; fi
if [ "$keeps" = 1 ]; then tar -c -S -f - "${@#/}" >&3 && printf '\nsaved\n' >&3; fi
"""


class SandboxError(Exception):
    """The sandbox could not start a command, through no fault of the command."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one command.

    Attributes:
      seconds: Wall-clock time; then all processes are killed.
      memory_mib: Address space of each process, and resident memory of all together.
      disk_mib: Size of each folder of the agent, and of all files that are kept.
      processes: Number of processes and threads.
      output_bytes: Length of the output that is returned; even.
      cpus: Number of processors, for containers.
    """

    seconds: float = 10
    memory_mib: int = 1024
    disk_mib: int = 64
    processes: int = 64
    output_bytes: int = 8192
    cpus: float = 1


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and where it runs. A container has its own folders, HOME and PATH.

    Attributes:
      text: Command for bash.
      folders: Folders of the agent, whose files are kept; absolute.
      work: Folder in which the command starts.
      variables: Environment variables, in addition to PATH, HOME and LANG.
      home: Value of HOME that replaces any other; empty for none.
      added: Archive that is unpacked besides the agent's files, with the folders of `extra`.
      extra: Further writable folders; their files are not kept.
      report: File whose content is returned as the output; empty for the output itself.
      keeps_files: False if the changed files are not needed.
      nests: True if the command may make sandboxes itself.
    """

    text: str
    folders: Sequence[str]
    work: str
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    home: str = ""
    added: bytes = b""
    extra: Sequence[str] = ()
    report: str = ""
    keeps_files: bool = True
    nests: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of a command.

    Attributes:
      status: Exit status; 137 if it was killed; None if the sandbox ended before the command.
      output: Output; the middle of a long one is left out.
      output_size: Number of bytes of the whole output.
      files: Archive of the files; None if they are as before the command, because they are not kept
        or do not fit the limits; empty in a container, which keeps them itself.
      seconds: Wall-clock time.
    """

    status: int | None
    output: bytes
    output_size: int
    files: bytes | None
    seconds: float


class Machine(Protocol):
    """The computer of one episode. Its files persist between commands; processes do not."""

    def run(self, command: Command, limits: Limits) -> Result:
        """Runs a command; raises SandboxError if it could not start.

        A command that keeps no files is that of the tests: it meets no process of the agent, and
        its folders `extra` have only the files of `added`.
        """

    def save(self) -> bytes:
        """Returns the files; raises NotImplementedError if they cannot be copied."""

    def close(self) -> None:
        """Removes what the machine holds; may be called twice."""


class Sandbox(Protocol):
    """A way to run commands in isolation."""

    def check(self) -> None:
        """Raises SetupError if this machine cannot give the sandbox."""

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Returns what `ServedEnvironment.shared` describes."""

    def open(self, task: "Task", files: bytes | None = None) -> Machine:
        """Returns a machine with the files of a task, or with saved ones.

        Raises:
          SandboxError: The machine does not start.
        """


def launch_arguments(command: Command, first: int, output: str, limits: Limits) -> list[str]:
    """Returns the arguments of bash that run a command inside a sandbox.

    Args:
      command: The command.
      first: Size of the archive that the launcher reads before `command.added`, in bytes.
      output: File for the output of the command, inside.
      limits: Limits of the command.
    """
    return [
        *("bash", "--noprofile", "--norc", "-c", LAUNCHER, "launcher"),
        *(str(limits.seconds), str(limits.output_bytes), str(first), str(len(command.added))),
        *(command.work, output, command.report, str(int(command.keeps_files)), command.text),
        *command.folders,
    ]


def launch_variables(command: Command, limits: Limits) -> dict[str, str]:
    """Returns the whole environment of a command in a sandbox with this machine's programs."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "LANG": "C.UTF-8",
        **command.variables,
        **({"HOME": command.home} if command.home else {}),
        "LIMITS": f"-c=0 -n=256 -u={limits.processes} -v={limits.memory_mib * 1024} "
        f"-f={limits.disk_mib * 1024}",
    }


def communicate(
    process: "subprocess.Popen[bytes]", data: bytes, command: Command, limits: Limits
) -> Result:
    """Sends the archives to a started launcher and returns its result; ends the process.

    Raises:
      SandboxError: The launcher said nothing.
    """
    started = time.monotonic()
    most = limits.disk_mib * MIB + limits.output_bytes + MIB
    try:
        said, problem = _exchange(process, data, most, started + limits.seconds + GRACE_S, limits)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
    seconds = time.monotonic() - started
    header, _, rest = said.partition(b"\n")
    words = header[:64].split()  # the launcher is as good as the programs of a container
    if len(words) != 2 or not all(word.isdigit() for word in words):
        if problem:
            raise SandboxError(problem)
        return Result(None, b"", 0, None, seconds)  # the command ended its own sandbox
    status, size = map(int, words)
    shown = min(size, limits.output_bytes)
    files = rest[shown:]
    is_whole = command.keeps_files and files.endswith(_SAVED) and len(said) < most
    return Result(status, rest[:shown], size, files[: -len(_SAVED)] if is_whole else None, seconds)


def _exchange(
    process: "subprocess.Popen[bytes]", data: bytes, most: int, deadline: float, limits: Limits
) -> tuple[bytes, str]:
    """Returns at most `most` bytes of the output, and the error output, until a limit is reached."""
    assert process.stdin and process.stdout and process.stderr
    said, problem, left = bytearray(), bytearray(), memoryview(data)
    next_poll = time.monotonic() + _FIRST_POLL_S
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ, said)
        selector.register(process.stderr, selectors.EVENT_READ, problem)
        while selector.get_map() and len(said) < most and time.monotonic() < deadline:
            for key, _ in selector.select(_POLL_S):
                if key.fileobj is process.stdin:
                    try:
                        left = left[os.write(key.fd, left[:65536]) :] if left else left
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        left = left[:0]
                    if not left:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                elif piece := os.read(key.fd, 65536):
                    key.data.extend(piece if len(key.data) < most else b"")
                else:
                    selector.unregister(key.fileobj)
            if time.monotonic() > next_poll:
                if resident_bytes(process.pid) > limits.memory_mib * MIB:
                    return b"", ""
                next_poll = time.monotonic() + _POLL_S
    return bytes(said), problem[:500].decode(errors="replace").strip()


def resident_bytes(root: int) -> int:
    """Returns the resident memory of a process and its descendants; shared pages count repeatedly."""
    return os.sysconf("SC_PAGE_SIZE") * sum(family(root).values())
