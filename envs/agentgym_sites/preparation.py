"""Prepares a site once in `<data>/webarena/<site>/<version>`; a failed or killed build leaves no
prepared site.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from agentgym_envs.artifacts import Say, announcer, build_once
from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError
from agentgym_sites.site import Account, Site, require

_HERE = pathlib.Path(__file__).parent
# Files on which the templates of all Django sites depend.
_SHARED_SOURCES = (
    "chance.py",
    "clock.py",
    "django_settings.py",
    "django_template.py",
    "episode_database.py",
)


def prepare(site: Site, folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a prepared site; builds the site, with progress on stderr, if it is not
    prepared.

    Raises:
      SetupError: the application is not installed, or the build failed.
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
    """Returns a version derived from the contents of files and the versions of installed packages."""
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
    """Runs `python -m module folder` and passes each line of its output to `say`.

    The build needs a separate process, because Django can be configured only once per process.

    Raises:
      SetupError: the build failed; the message contains the end of its output.
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


@dataclasses.dataclass(frozen=True)
class PackagedSite:
    """A site whose folder here has the modules `build` and `server`; implements `Site`.

    Attributes:
      application: Name of the application in messages.
      imports: Packages that the application needs.
      sources: Files of the folder that determine the template.
      distributions: Distributions whose releases determine the template.
    """

    name: str
    paths: Mapping[str, str]
    accounts: Mapping[str, Account]
    application: str
    imports: Sequence[str]
    sources: Sequence[str]
    distributions: Sequence[str]

    def missing(self) -> str | None:
        """Returns an installation hint if the application is missing, else None."""
        absent = [name for name in self.imports if not _is_installed(name)]
        if not absent:
            return None
        return (
            f"the embedded {self.name} needs {self.application} ({' and '.join(absent)} cannot be "
            f"imported): {extras.install('web')}"
        )

    def version(self) -> str:
        """Returns a version that depends on the sources and the releases of the distributions."""
        files = [_HERE / self.name / name for name in self.sources]
        shared = [_HERE / name for name in _SHARED_SOURCES]
        return fingerprint([*files, *shared], self.distributions)

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Writes the template database and the storage states into `folder`."""
        run_builder(f"agentgym_sites.{self.name}.build", folder, say)

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Returns the command that starts the module `server`."""
        options = ("--prepared", prepared, "--episodes", episodes, "--port", port)
        command = [sys.executable, "-m", f"agentgym_sites.{self.name}.server", *map(str, options)]
        return [*command, "--parent-pid", str(parent_pid)]


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # Python also accepts a folder of this name as a package, but such a package has no origin.
    return spec is not None and spec.origin is not None
