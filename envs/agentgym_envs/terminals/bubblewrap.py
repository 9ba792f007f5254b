"""Sandboxes of bubblewrap: namespaces, a read-only system, and folders in memory.

They need no daemon and no rights beyond user namespaces. Root starts them as `nobody`, because the
kernel exempts root from the limit of processes and lets it write some files of /proc.
"""

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
    require_programs,
)

PROGRAMS = ("bash", "tar", "timeout", "stat", "python3", "git")
_NOBODY = 65534
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
        require_programs(self, PROGRAMS, nests=False)
        require_programs(self, ("bwrap",), nests=True)

    def run(self, command: Command, files: bytes, limits: Limits) -> Result:
        """Implements `Sandbox.run`."""
        inherited: list[int] = []
        try:
            arguments = ["bwrap", *_options(command, limits, inherited)]
            process = subprocess.Popen(
                [*arguments, "--", *launch_arguments(command, files, limits)],
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
