"""Prepares a site once: under `<data>/webarena/<site>/<version>`, complete or not at all."""

import functools
import hashlib
import importlib.metadata
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from agentgym_envs.artifacts import Say, announcer, build_once
from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena.sites.site import Site, require

_HERE = pathlib.Path(__file__).parent
# What the templates of Django sites share.
_SHARED_SOURCES = ("chance.py", "clock.py", "django_template.py", "episode_database.py")


def prepare(site: Site, folder: pathlib.Path) -> pathlib.Path:
    """The folder of a prepared site, which is built if it does not exist; stderr is told.

    Args:
      site: which.
      folder: below which the folders of the sites lie.

    Raises:
      SetupError: the application is not installed or the building failed.
    """
    finished = folder / site.name / site.version()
    if not finished.exists():
        require(site)
        say = announcer(f"webarena: {site.name}")
        build_once(finished, functools.partial(_build, site, say), say)
    return finished


def _build(site: Site, say: Say, unfinished: pathlib.Path) -> None:
    began = time.monotonic()
    say(f"preparing {unfinished.name}, once")
    site.build(unfinished, say)
    say(f"prepared in {time.monotonic() - began:.0f} s")


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


def template_version(files: Sequence[pathlib.Path], packages: Sequence[str]) -> str:
    """The `fingerprint` of what makes the template of a Django site.

    Args:
      files: of the site.
      packages: as for `fingerprint`.
    """
    return fingerprint([*files, *(_HERE / name for name in _SHARED_SOURCES)], packages)


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
