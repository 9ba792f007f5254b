"""Prepares a site once: under `<data>/webarena/<site>/<version>`, complete or not at all."""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena.sites.site import Site, require

_LOGGER = logging.getLogger(__name__)
_UNFINISHED = ".unfinished"


def prepare(
    site: Site, folder: pathlib.Path, say: Callable[[str], None] = _LOGGER.info
) -> pathlib.Path:
    """The folder of a prepared site, which is built if it does not exist.

    Processes that ask at the same time wait for one that builds. One that is killed leaves an
    unfinished folder that the next removes.

    Args:
      site: which.
      folder: below which the folders of the sites lie.
      say: is told what is being done.

    Raises:
      SetupError: the application is not installed or the building failed.
    """
    finished = folder / site.name / site.version()
    if finished.exists():
        return finished
    require(site)
    finished.parent.mkdir(parents=True, exist_ok=True)
    with _locked(finished.parent / "lock"):
        if finished.exists():  # another process was quicker
            return finished
        unfinished = finished.with_name(finished.name + _UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        began = time.monotonic()
        say(f"{site.name}: preparing in {finished}")
        site.build(unfinished, lambda text: say(f"{site.name}: {text}"))
        os.replace(unfinished, finished)
        say(f"{site.name}: prepared in {time.monotonic() - began:.0f} s")
    return finished


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process, however that ends
        yield


def fingerprint(files: Iterable[pathlib.Path], packages: Sequence[str]) -> str:
    """A version made of the contents of files and the versions of installed packages.

    Args:
      files: whose contents matter.
      packages: names of Python distributions; one that is missing counts as such.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for package in packages:
        try:
            digest.update(f"{package}={importlib.metadata.version(package)}\0".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"{package} is missing\0".encode())
    return digest.hexdigest()[:16]


def run_builder(module: str, folder: pathlib.Path, say: Callable[[str], None]) -> None:
    """Runs `python -m module folder` and passes each line of its output on.

    A process of its own, because Django can be configured once in a process.

    Args:
      module: that builds.
      folder: to build in.
      say: is told each line.

    Raises:
      SetupError: it failed; the message has the end of its output.
    """
    command = [sys.executable, "-m", module, str(folder)]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                say(lines[-1])
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise SetupError(
            f"{' '.join(command)} failed with status {process.returncode}:\n"
            + "\n".join(lines[-20:])
        )
