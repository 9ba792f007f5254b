"""Sandboxes: one shell command in a fresh set of processes over the files of an episode.

The files are an archive of `tar` that the host stores and never reads. Each command starts from
it in an empty file system in memory and ends with a new archive. So an episode has no process and
no file on this machine between two commands.
"""

import dataclasses
import functools
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import Protocol

from agentgym_envs.base.environment import SetupError

MIB = 1 << 20
OUTPUT_DISK_MIB = 8  # a command that prints more gets write errors
GRACE_S = 10  # time to unpack and pack the files, in addition to the time of the command
HOME = "/home/agent"
_FIRST_POLL_S, _POLL_S = 0.2, 0.1  # total memory is compared with its limit at these times
_SAVED = b"\nsaved\n"

# Arguments: seconds, bytes of output, size of the first archive, size of the second, folder of work,
# reported file, 1 to save files, command, folders of the agent. The first archive belongs to the agent, so only its
# own folders are unpacked. Limits are set in a subshell, because they must not hit the commands
# after it. `kill` spares this shell and process 1.
LAUNCHER = r"""
exec 3>&1 >/dev/null 2>&1
seconds=$1 shown=$2 first=$3 second=$4 work=$5 report=$6 keeps=$7 command=$8; shift 8
cd /
if [ "$first" -gt 0 ]; then head -c "$first" | tar -x -p --no-same-owner -f - "${@#/}" || exit 70; fi
if [ "$second" -gt 0 ]; then tar -x -p --no-same-owner -f - || exit 70; fi
cd "$work"
(
  ulimit -c 0; ulimit -n 256
  ulimit -u "$LIMIT_PROCESSES"; ulimit -v "$LIMIT_KIB"; ulimit -f "$LIMIT_FILE_KIB"
  unset LIMIT_PROCESSES LIMIT_KIB LIMIT_FILE_KIB
  exec timeout -s KILL "$seconds" bash -c "$command" </dev/null >/run/output 2>&1 3>&-
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
    """

    seconds: float = 10
    memory_mib: int = 1024
    disk_mib: int = 64
    processes: int = 64
    output_bytes: int = 8192


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and where it runs.

    Attributes:
      text: Command for bash.
      folders: Folders of the agent, whose files are kept; absolute.
      work: Folder in which the command starts.
      variables: Environment variables, in addition to PATH, HOME and LANG.
      added: Archive that is unpacked besides the agent's files, with the folders of `extra`.
      extra: Further writable folders; their files are not kept.
      report: File whose content is returned as the output.
      keeps_files: False if the changed files are not needed.
      nests: True if the command may make sandboxes itself.
    """

    text: str
    folders: Sequence[str]
    work: str
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    added: bytes = b""
    extra: Sequence[str] = ()
    report: str = "/run/output"
    keeps_files: bool = True
    nests: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of a command.

    Attributes:
      status: Exit status; 137 if it was killed; None if the sandbox ended before the command.
      output: Output; the middle of a long one is left out.
      output_size: Number of bytes of the whole output.
      files: Archive of the files; None if they are not kept or do not fit the limits.
      seconds: Wall-clock time.
    """

    status: int | None
    output: bytes
    output_size: int
    files: bytes | None
    seconds: float


class Sandbox(Protocol):
    """A way to run commands in isolation."""

    def check(self) -> None:
        """Raises SetupError if this machine cannot give the sandbox."""

    def run(self, command: Command, files: bytes, limits: Limits) -> Result:
        """Runs a command; raises SandboxError if the sandbox did not start."""


def launch_arguments(command: Command, files: bytes, limits: Limits) -> list[str]:
    """Returns the arguments of bash that run a command inside a sandbox."""
    return [
        *("bash", "--noprofile", "--norc", "-c", LAUNCHER, "launcher"),
        *(str(limits.seconds), str(limits.output_bytes), str(len(files)), str(len(command.added))),
        *(command.work, command.report, str(int(command.keeps_files)), command.text),
        *command.folders,
    ]


def launch_variables(command: Command, limits: Limits) -> dict[str, str]:
    """Returns the whole environment of a command in a sandbox."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "LANG": "C.UTF-8",
        **command.variables,
        "LIMIT_PROCESSES": str(limits.processes),
        "LIMIT_KIB": str(limits.memory_mib * 1024),
        "LIMIT_FILE_KIB": str(limits.disk_mib * 1024),
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
    words = header.split()
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
    parents, pages = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:  # the process has ended
                continue
            parents[int(name)], pages[int(name)] = int(fields[1]), int(fields[21])

    @functools.cache
    def belongs(pid: int) -> bool:
        return pid == root or (pid in parents and belongs(parents[pid]))

    page = os.sysconf("SC_PAGE_SIZE")
    return page * sum(size for pid, size in pages.items() if belongs(pid))


def require_programs(sandbox: Sandbox, programs: Sequence[str], nests: bool) -> None:
    """Runs a command that finds the programs.

    Raises:
      SetupError: The sandbox does not start or lacks a program.
    """
    looked_up = "; ".join(
        f"command -v {program} >/dev/null || echo {program}" for program in programs
    )
    command = Command(looked_up, (HOME,), HOME, nests=nests)
    try:
        result = sandbox.run(command, b"", Limits())
    except SandboxError as error:
        raise SetupError(str(error)) from error
    if result.status != 0 or result.output:
        missing = result.output.decode(errors="replace").split()
        raise SetupError(
            f"the sandbox lacks {', '.join(missing) or 'bash'}. Run: apt-get install "
            f"{' '.join(missing) or 'bash'}"
        )
