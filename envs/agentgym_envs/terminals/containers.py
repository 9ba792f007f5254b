"""Sandboxes of docker or podman: an image for each task, and a container for each episode.

A container has no network. Its limits are those of the engine's control groups. Its files and
programs belong to the agent, who is root in it, as in Harbor. Before the tests it is restarted, which
ends every process of the agent and empties the folders of the tests.

The name of a container has the process that owns it. Containers of dead processes are removed.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_envs.processes import kill_family
from agentgym_envs.terminals.sandbox import (
    OUTPUT_DISK_MIB,
    Command,
    Limits,
    Result,
    SandboxError,
    communicate,
    launch_arguments,
)
from agentgym_envs.terminals.tasks import LOGS, TESTS, Image, Task

ENGINES = ("docker", "podman")
LABEL = "agentgym.terminals"
MAX_IMAGES = 100  # besides those of the present tasks; the oldest go
_LOGGER = logging.getLogger(__name__)
_CALL_SECONDS = 60
_PROGRESS_SECONDS = 30  # a server that starts must not be silent for long
_PROCESSES = 512
_TESTS_MIB = 256
_OUTPUT = "/logs/command"
_FOLDER = "/proc"  # podman would leave a file `oom` where it runs
_MAX_CONTEXT_BYTES = 1 << 30
_FAILURES = "AGENTGYM_TERMINALS_FAILURES"  # variable with the failed builds, for the workers
# Process 1 replaces its child, which `kill -9 -1` ends, and ends itself after a day.
_IDLE = "while ((SECONDS < 86400)); do sleep 60 & wait; done"


class Containers:
    """Runs the commands of some tasks in containers of an engine, `docker` or `podman`."""

    def __init__(self, engine: str, tasks: Sequence[Task]):
        self.engine = engine
        self._images = {task.name: task.image for task in tasks if task.image is not None}
        self._names: Mapping[str, str] = {}
        self._failures: dict[str, str] = {}

    def answers(self) -> bool:
        """Returns True if the engine works on this machine."""
        try:
            self.call("ps", "--quiet")
        except SandboxError:
            return False
        return True

    def check(self) -> None:
        """Implements `Sandbox.check`: removes leftovers, and builds the images unless a server did."""
        built = os.environ.get(_FAILURES)
        self._names = {task: _image_name(image) for task, image in self._images.items()}
        try:
            self._remove_leftovers()
            if built is None:
                self._build()
        except SandboxError as error:
            raise SetupError(str(error)) from None
        if built is not None:
            self._failures = json.loads(built)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Implements `Sandbox.shared`: builds the images before the workers of a server start."""
        self.check()
        os.environ[_FAILURES] = json.dumps(self._failures)
        try:
            yield
        finally:
            del os.environ[_FAILURES]
            with contextlib.suppress(SandboxError):
                self._remove_leftovers()

    def open(self, task: Task, files: bytes | None = None) -> "_Container":
        """Implements `Sandbox.open`; there are no saved files."""
        if task.name in self._failures:
            raise SandboxError(self._failures[task.name])
        name = f"{_owner(os.getpid())}-{uuid.uuid4().hex[:8]}"
        memory = f"{task.limits.memory_mib}m"
        container = _Container(self, name)
        try:
            self.call(
                *("run", "--detach", f"--name={name}", f"--label={LABEL}={_machine()}"),
                *("--pull=never", "--network=none", "--hostname=sandbox", "--stop-signal=KILL"),
                *(f"--memory={memory}", f"--memory-swap={memory}"),
                *(f"--cpus={task.limits.cpus:g}", f"--pids-limit={_PROCESSES}"),
                f"--tmpfs={TESTS}:rw,exec,mode=1777,size={_TESTS_MIB}m",
                f"--tmpfs={LOGS}:rw,exec,mode=1777,size={_TESTS_MIB}m",
                f"--tmpfs={_OUTPUT}:rw,mode=1777,size={OUTPUT_DISK_MIB}m",
                *("--entrypoint=bash", self._names[task.name]),
                *("--noprofile", "--norc", "-c", _IDLE),
            )
        except BaseException:
            container.close()
            raise
        return container

    def call(self, *arguments: str, seconds: float = _CALL_SECONDS) -> str:
        """Returns the output of a command of the engine.

        Raises:
          SandboxError: The engine is not installed, fails, or takes too long.
        """
        if shutil.which(self.engine) is None:
            raise SandboxError(f"{self.engine} is not installed")
        what = f"`{self.engine} {arguments[0]}`"
        deadline = time.monotonic() + seconds
        process = subprocess.Popen(
            # `timeout` is for the case that this process has been killed.
            ["timeout", "--kill-after=10", f"{seconds + 60:g}", self.engine, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=_FOLDER,
            text=True,
            errors="replace",
        )
        with process:
            while True:
                left = max(0.0, deadline - time.monotonic())
                try:
                    output, problem = process.communicate(timeout=min(left, _PROGRESS_SECONDS))
                    break
                except subprocess.TimeoutExpired:
                    if left == 0:
                        break
                    _LOGGER.warning("%s is running: %s", what, arguments[-1])
            if process.returncode is None:
                # Podman would leave the processes of a build, which are in other groups.
                kill_family(process.pid)
                raise SandboxError(f"{what} was ended after {seconds:g} s")
        if process.returncode:
            raise SandboxError(f"{what} failed: {_last_lines(output + problem)}")
        return output

    def _build(self) -> None:
        """Makes the images that do not exist; a failure is one of its task only."""
        for number, (task, image) in enumerate(self._images.items(), 1):
            name = self._names[task]
            try:
                self.call("image", "inspect", name)
                continue
            except SandboxError:
                place = f"{number} of {len(self._images)}"
                _LOGGER.warning("making the image of the task %s, %s", task, place)
            finished = ("pull", name)
            built = (
                "build",
                f"--tag={name}",
                f"--label={LABEL}=image",
                str(image.context.resolve()),
            )
            try:
                self.call(*(finished if image.name else built), seconds=image.seconds)
            except SandboxError as error:
                self._failures[task] = f"the task {task} has no image: {error}"
                _LOGGER.error("%s", self._failures[task])
        listed = ("images", f"--filter=label={LABEL}=image", "--format={{.Repository}}:{{.Tag}}")
        ours = {name.rpartition("/")[2] for name in self._names.values()}
        others = [
            name for name in self.call(*listed).split() if name.rpartition("/")[2] not in ours
        ]
        for name in others[MAX_IMAGES:]:
            with contextlib.suppress(SandboxError):  # a container of another server has it
                self.call("rmi", name)

    def _remove_leftovers(self) -> None:
        """Removes the containers of processes of this machine that have ended."""
        mine = f"--filter=label={LABEL}={_machine()}"
        for name in self.call("ps", "--all", mine, "--format={{.Names}}").split():
            owner, _, _ = name.rpartition("-")
            pid = owner.split("-")[-2]
            if owner != _owner(int(pid)):
                self.call("rm", "--force", "--volumes", name)


class _Container:
    """Machine that is a container."""

    def __init__(self, sandbox: Containers, name: str):
        self._sandbox = sandbox
        self._name = name

    def run(self, command: Command, limits: Limits) -> Result:
        """Implements `Machine.run`."""
        if not command.keeps_files:
            self._restart()
        variables = {**command.variables, "LIMITS": f"-c=0 -f={limits.disk_mib * 1024}"}
        command = dataclasses.replace(command, folders=(), work="", keeps_files=False)
        started = time.monotonic()
        process = subprocess.Popen(
            [
                *(self._sandbox.engine, "exec", "--interactive"),
                *(f"--env={name}={value}" for name, value in variables.items()),
                self._name,
                *launch_arguments(command, 0, f"{_OUTPUT}/output", limits),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=_FOLDER,
            bufsize=0,
        )
        try:
            # No archive of files comes back.
            limits = dataclasses.replace(limits, disk_mib=0)
            result = communicate(process, command.added, command, limits)
        except SandboxError:  # for example, the agent has removed bash
            result = Result(None, b"", 0, None, time.monotonic() - started)
        if result.status is None:
            self._restart()
        return dataclasses.replace(result, files=b"")

    def save(self) -> bytes:
        """Implements `Machine.save`."""
        raise NotImplementedError("the files of a container cannot be copied")

    def close(self) -> None:
        """Implements `Machine.close`."""
        with contextlib.suppress(SandboxError):  # otherwise a leftover
            self._sandbox.call("rm", "--force", "--volumes", self._name)

    def _restart(self) -> None:
        """Ends all processes, also those of a stopped container.

        Raises:
          SandboxError: The engine does not answer. A container that the agent broke is no error.
        """
        try:
            self._sandbox.call("restart", "-t", "0", self._name)
        except SandboxError:
            if not self._sandbox.answers():
                raise


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _owner(pid: int) -> str:
    """Returns the name of a process of this machine; it ends with 0 if there is no such process."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        started = 0 if fields[0] == b"Z" else int(fields[19])
    except OSError:
        started = 0
    return f"agentgym-{_machine()}-{boot}-{pid}-{started}"


def _image_name(image: Image) -> str:
    """Returns the name of an image, which has a digest of its folder.

    Raises:
      SetupError: The folder is too large.
    """
    if image.name:
        return image.name
    digest, size = hashlib.sha256(), 0
    for path in sorted(image.context.rglob("*")):
        state = path.lstat()
        digest.update(f"{path.relative_to(image.context)}\0{state.st_mode:o}\0".encode())
        if path.is_symlink():
            digest.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            size += state.st_size
            if size > _MAX_CONTEXT_BYTES:
                raise SetupError(f"the files in {image.context} have more than 1 GiB")
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"agentgym-terminals:{digest.hexdigest()[:32]}"


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-400:] or "no output"
