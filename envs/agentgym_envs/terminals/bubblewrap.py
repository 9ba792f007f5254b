"""Sandboxes of bubblewrap: namespaces, a read-only system, and folders in memory.

The files of an episode are an archive of `tar` that the host stores and never reads. Each command
starts from it in an empty file system in memory and ends with a new archive. So an episode has no
process and no file on this machine between two commands.

Sandboxes need no daemon and no rights beyond user namespaces. Root starts them as `nobody`, because the
kernel exempts root from the limit of processes and lets it write some files of /proc.
"""

import contextlib
import dataclasses
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.terminals import seccomp
from agentgym_envs.terminals.sandbox import (
    HOME,
    MIB,
    OUTPUT_DISK_MIB,
    Command,
    Limits,
    Result,
    SandboxError,
    communicate,
    launch_arguments,
    launch_variables,
)
from agentgym_envs.terminals.tasks import Task, pack

PROGRAMS = ("bash", "tar", "timeout", "stat", "python3", "git")
_DISK_MIB = 64  # at most, because the files are in memory
_NOBODY = 65534
_OUTPUT = "/run/output"
_ID = "1000"  # of user and group inside
_ACCOUNTS = {
    "/etc/passwd": f"agent:x:{_ID}:{_ID}::{HOME}:/bin/bash\n",
    "/etc/group": f"agent:x:{_ID}:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
}


class Bubblewrap:
    """Runs commands with bubblewrap."""

    def check(self) -> None:
        """Implements `Sandbox.check`; tests a real sandbox, and one inside a sandbox."""
        if not seccomp.is_supported():
            raise SetupError(
                f"sandboxes need a processor of type x86_64 or aarch64, this is {platform.machine()}"
            )
        _require_programs(self, PROGRAMS, nests=False)
        _require_programs(self, ("bwrap",), nests=True)

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Implements `Sandbox.shared`; there is nothing to share."""
        return contextlib.nullcontext()

    def open(self, task: Task, files: bytes | None = None) -> "_Files":
        """Implements `Sandbox.open`."""
        first = pack(task.files, [task.work, *task.folders]) if files is None else files
        return _Files(self, first)

    def run(self, command: Command, files: bytes, limits: Limits) -> Result:
        """Runs a command over the files of an archive; raises SandboxError if it cannot start."""
        inherited: list[int] = []
        limits = dataclasses.replace(limits, disk_mib=min(limits.disk_mib, _DISK_MIB))
        try:
            arguments = ["bwrap", *_options(command, limits, inherited)]
            process = subprocess.Popen(
                [*arguments, "--", *launch_arguments(command, len(files), _OUTPUT, limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
                bufsize=0,
                **_less_than_root(),
            )
        except (FileNotFoundError, PermissionError):
            raise SandboxError(
                "bubblewrap is not installed. Run: apt-get install bubblewrap"
            ) from None
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        try:
            return communicate(process, files + command.added, command, limits)
        except SandboxError as error:
            raise SandboxError(
                f"bubblewrap gave no sandbox ({error}). It needs version 0.8 or newer, and user "
                "namespaces; as root: sysctl -w user.max_user_namespaces=10000 "
                "kernel.apparmor_restrict_unprivileged_userns=0"
            ) from None


class _Files:
    """Machine that is an archive of files, over which each command runs in a new sandbox."""

    def __init__(self, sandbox: Bubblewrap, files: bytes):
        self._sandbox = sandbox
        self._files = files

    def run(self, command: Command, limits: Limits) -> Result:
        """Implements `Machine.run`."""
        result = self._sandbox.run(command, self._files, limits)
        self._files = self._files if result.files is None else result.files
        return result

    def save(self) -> bytes:
        """Implements `Machine.save`."""
        return self._files

    def close(self) -> None:
        """Implements `Machine.close`."""


def _require_programs(sandbox: Bubblewrap, programs: Sequence[str], nests: bool) -> None:
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


def _less_than_root() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _options(command: Command, limits: Limits, inherited: list[int]) -> Iterator[str]:
    """Yields the options of bwrap; adds the pipes that it reads to `inherited`."""

    def pipe(data: bytes) -> str:
        reader, writer = os.pipe()  # holds 64 KiB, more than any of these texts
        inherited.append(reader)
        os.write(writer, data)
        os.close(writer)
        return str(reader)

    yield from ("--unshare-user", "--unshare-all", "--die-with-parent", "--new-session")
    yield from ("--uid", _ID, "--gid", _ID, "--hostname", "sandbox", "--clearenv")
    for name, value in launch_variables(command, limits).items():
        yield from ("--setenv", name, value)
    yield from system_folders()
    for path, text in _ACCOUNTS.items():
        yield from ("--ro-bind-data", pipe(text.encode()), path)
    yield from ("--proc", "/proc", "--dev", "/dev")
    sizes = dict.fromkeys([*command.folders, *command.extra], limits.disk_mib)
    for folder, mib in {"/dev/shm": limits.disk_mib, "/run": OUTPUT_DISK_MIB, **sizes}.items():
        yield from ("--size", str(mib * MIB), "--tmpfs", folder)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")
    yield from ("--seccomp", pipe(seccomp.program()))
    if not command.nests:
        yield "--disable-userns"


def system_folders() -> Sequence[str]:
    """Returns options that show programs and libraries of this machine, read-only."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            options += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        else:
            options += ["--ro-bind-try", f"/{name}", f"/{name}"]
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        options += ["--ro-bind-try", path, path]
    return options
