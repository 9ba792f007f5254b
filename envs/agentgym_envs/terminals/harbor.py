"""Reads and writes tasks as folders in the format of Harbor.

A sandbox without docker has the programs of this machine. For it a Dockerfile may place files and
set variables. A task that installs something needs a container.
"""

import os
import pathlib
import posixpath
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.terminals.sandbox import HOME, MIB, Limits
from agentgym_envs.terminals.tasks import File, Image, Task

MAX_BYTES = 32 * MIB  # of the files of one task
_MAX_MEMORY_MIB, _MAX_DISK_MIB = 8192, 10240
_MAX_BUILD_SECONDS = 1800
_MAX_SECONDS = 24 * 3600
# Folders of the system or of the tests, in which a task cannot place files.
_RESERVED = frozenset(
    "bin boot dev etc lib lib32 lib64 logs proc run sbin solution sys tests usr".split()
)
_IGNORED = frozenset("CMD ENTRYPOINT EXPOSE FROM LABEL MAINTAINER".split())


def read_folder(path: str) -> list[Task]:
    """Returns the task of a folder, or the tasks of all folders in it, sorted by name.

    Raises:
      SetupError: There is no task, or one is incomplete.
    """
    root = pathlib.Path(path)
    if (root / "task.toml").is_file():
        return [_read_task(root)]
    folders = sorted(toml.parent for toml in root.glob("*/task.toml"))
    if not folders:
        raise SetupError(
            f"{path} has no task.toml, neither in it nor in its folders; expected tasks in Harbor's "
            "format"
        )
    return [_read_task(folder) for folder in folders]


def _read_task(root: pathlib.Path) -> Task:
    for name in ("instruction.md", "tests/test.sh", "environment"):
        if not (root / name).exists():
            raise SetupError(f"the task {root} has no {name}; every task of Harbor has one")
    config = _read_toml(root / "task.toml")
    environment, verifier = _section(config, "environment"), _section(config, "verifier")
    image = _read_image(root, environment)
    tests = _read_files(root / "tests")
    reason = ""
    try:
        work, variables, files = _read_dockerfile(root / "environment")
        if sum(len(file.data) for file in (*files.values(), *tests.values())) > MAX_BYTES:
            raise SetupError(f"the files of the task {root} have more than {MAX_BYTES // MIB} MiB")
    except SetupError as error:
        work, variables, files, reason = "/app", {}, {}, str(error)
    memory, disk = environment.get("memory_mb", 1024), environment.get("storage_mb", _MAX_DISK_MIB)
    cpus = _number(root, environment.get("cpus", 1), 1e6)
    solution = root / "solution" / "solve.sh"
    return Task(
        name=root.name,
        instruction=_read_text(root / "instruction.md").strip(),
        files=files,
        tests=tests,
        solution=_read_text(solution) if solution.is_file() else "",
        work=work,
        variables=variables,
        test_variables={str(k): str(v) for k, v in _section(verifier, "env").items()},
        agent_seconds=_number(
            root, _section(config, "agent").get("timeout_sec", 600), _MAX_SECONDS
        ),
        test_seconds=_number(root, verifier.get("timeout_sec", 600), _MAX_SECONDS),
        limits=Limits(
            memory_mib=int(min(_number(root, memory, 1e6), _MAX_MEMORY_MIB)),
            disk_mib=int(min(_number(root, disk, 1e9), _MAX_DISK_MIB)),
            cpus=min(cpus, os.cpu_count() or 1),
        ),
        image=image,
        needs_container=reason,
    )


def _read_image(root: pathlib.Path, environment: Mapping[str, Any]) -> Image:
    context, name = root / "environment", environment.get("docker_image", "")
    if not isinstance(name, str) or name.startswith("-"):
        raise SetupError(f"the task {root} has docker_image={name!r:.80}; expected an image's name")
    if not name and not (context / "Dockerfile").is_file():
        if any(context.glob("docker-compose.y*ml")):
            raise SetupError(f"{context} has docker-compose and no Dockerfile; add a Dockerfile")
    seconds = _number(root, environment.get("build_timeout_sec", 600), 1e6)
    return Image(context, name, min(seconds, _MAX_BUILD_SECONDS))


def _read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} cannot be read as text: {error}") from error


def _read_toml(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{path} is not TOML: {error}") from error


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name, {})
    if not isinstance(section, dict):
        raise SetupError(f"task.toml: {name} is {section!r:.80}; expected a table")
    return section


def _number(root: pathlib.Path, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= most:
        raise SetupError(f"the task {root} has the limit {value!r:.80}; expected 1 to {most:g}")
    return float(value)


def _read_files(root: pathlib.Path) -> dict[str, File]:
    """Returns the files of a folder by relative path; refuses links, which could lead elsewhere."""
    files, total = {}, 0
    for path in [root] if root.is_file() else sorted(root.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise SetupError(f"{path} is a link or a special file; replace it by a plain file")
        if path.is_file():
            total += path.stat().st_size
            if total > MAX_BYTES:
                raise SetupError(f"the files in {root} have more than {MAX_BYTES // MIB} MiB")
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            files[path.relative_to(root).as_posix()] = File(path.read_bytes(), mode)
    return files


def _read_dockerfile(context: pathlib.Path) -> tuple[str, dict[str, str], dict[str, File]]:
    """Returns the working folder, variables and files of an image.

    Raises:
      SetupError: An instruction needs docker.
    """
    path = context / "Dockerfile"
    if not path.is_file():
        return "/app", {}, {}
    work, images = "/app", 0
    variables: dict[str, str] = {}
    files: dict[str, File] = {}
    for line in _instructions(_read_text(path)):
        word, _, rest = line.partition(" ")
        name = word.upper()
        if name == "WORKDIR":
            work = _place(path, line, posixpath.join(work, rest.strip()))
        elif name == "ENV":
            variables |= _pairs(path, line)
        elif name == "COPY":
            files |= _copy(context, line, work)
        elif name not in _IGNORED:
            raise _needs_docker(path, line)
        images += name == "FROM"
    if images != 1:
        raise SetupError(f"{path} has {images} FROM; without docker a task has exactly one")
    return work, variables, files


def _instructions(text: str) -> Iterator[str]:
    """Yields the instructions of a Dockerfile, with continued lines joined."""
    lines = [line.strip() for line in text.splitlines()]
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    yield from (line for line in joined.splitlines() if line)


def _needs_docker(path: pathlib.Path, line: str) -> SetupError:
    return SetupError(
        f"{path}: `{line:.80}` needs docker or podman. Install one, or place prepared files with COPY"
    )


def _place(path: pathlib.Path, line: str, place: str) -> str:
    """Returns a normal absolute path outside the system's folders."""
    place = posixpath.normpath(place)
    top = place.split("/")[1]
    is_home = f"{place}/".startswith(f"{HOME}/")
    if "$" in place or not top or top in _RESERVED or (top == "home" and not is_home):
        raise _needs_docker(path, line)
    return place


def _words(path: pathlib.Path, line: str) -> list[str]:
    """Returns the arguments of an instruction."""
    try:
        return shlex.split(line)[1:]
    except ValueError as error:
        raise SetupError(f"{path}: `{line:.80}` cannot be read: {error}") from error


def _pairs(path: pathlib.Path, line: str) -> dict[str, str]:
    words = _words(path, line)
    if not words or any("$" in word or "=" not in word for word in words):
        raise _needs_docker(path, line)
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _copy(context: pathlib.Path, line: str, work: str) -> dict[str, File]:
    path = context / "Dockerfile"
    *sources, target = _words(path, line) or [""]
    if not sources or any(
        word.startswith(("-", "[")) or set(word) & set("*?$") for word in sources
    ):
        raise _needs_docker(path, line)
    is_folder = target.endswith("/") or target in (".", "..") or len(sources) > 1
    place = _place(path, line, posixpath.join(work, target))
    files = {}
    for source in sources:
        found = context / source.lstrip("/")
        if not found.exists() or not found.resolve().is_relative_to(context.resolve()):
            raise SetupError(f"{path}: `{line:.80}`: there is no {source} in {context}")
        for name, file in _read_files(found).items():
            is_named = found.is_dir() or is_folder
            inside = found.name if name == "." else name
            files[posixpath.join(place, inside) if is_named else place] = file
    return files
