"""Facts about the start of a run: command, commit, versions, machine."""

import importlib.metadata
import os
import pathlib
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import agentgym_jax
from agentgym_jax.runs import redact

# other packages whose versions are recorded
_PACKAGES = "jax jaxlib flax optax orbax-checkpoint chex transformers tokenizers numpy"


def git_state(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns `commit` and `dirty` (has changes) of the checkout that tracks `folder`, or None."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=20
        ).strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def provenance(
    devices: Sequence[str], machine: Mapping[str, Any], command: Sequence[str]
) -> dict[str, Any]:
    """Returns the facts of a start; `machine` has further ones."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": redact.command(command),
        "git": git_state(pathlib.Path(__file__).parent),
        "versions": {
            "agentgym-jax": agentgym_jax.__version__,
            **{package: _version(package) for package in _PACKAGES.split()},
        },
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "devices": list(devices),
        **machine,
    }


def commit_of(facts: Mapping[str, Any]) -> str:
    """Returns the short commit of a start, or "an unknown commit"."""
    return ((facts.get("git") or {}).get("commit") or "")[:10] or "an unknown commit"


def version_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the differences of two starts in commit and versions, such as `jax 0.10.2 to 0.11.0`."""
    before, now = ({"commit": commit_of(f), **f.get("versions", {})} for f in (old, new))
    return [
        f"{name} {before[name]} to {now[name]}"
        for name in now
        if name in before and before[name] != now[name]
    ]


def add_manifests(starts: Sequence[dict[str, Any]], manifests: Mapping[str, str]) -> list[str]:
    """Adds the hashes of the task lists to the last start; returns the environments with a new one."""
    *earlier, now = starts
    now["manifests"] = dict(manifests)
    before: Mapping[str, str] = next(
        (s["manifests"] for s in reversed(earlier) if "manifests" in s), {}
    )
    return [name for name, sha256 in manifests.items() if before.get(name, sha256) != sha256]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
