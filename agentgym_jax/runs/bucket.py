"""Run folders in a bucket, given by a URL such as `gs://bucket/run`.

A bucket has no append, no locks and no renaming of folders, and servers and tokenizers need local
files. The small files of such a run are therefore written to a local staging folder, and a `Mirror`
copies them to the bucket. Trajectories and checkpoints are written directly to the bucket.

In tests, `file:///path` stands for a bucket: a folder that only the mirror copies to.
"""

import atexit
import functools
import hashlib
import importlib.util
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import fsspec.config
from etils import epath

from agentgym_envs.base import extras
from agentgym_jax.mesh import processes

_STAGING = "~/.cache/agentgym_jax/staging"
_TRAJECTORIES = "trajectories"
_DIRECT = (_TRAJECTORIES, "checkpoints")  # folders without staging
_LOCAL = "logs"  # folder that stays on its machine

Folder: TypeAlias = pathlib.Path | epath.Path


def is_url(path: str | os.PathLike) -> bool:
    """Returns True for names such as `gs://bucket/run` and for paths in a bucket."""
    return "://" in str(path)


def is_object_store(path: str | os.PathLike) -> bool:
    """Returns True for a path of Google Cloud Storage, which has objects instead of files."""
    return str(path).startswith("gs://")


def to_folder(name: str | os.PathLike) -> Folder:
    """Returns an absolute path, local or in a bucket.

    Raises:
      ValueError: No bucket of this kind is supported, the name of the folder is missing, or a
        package is not installed.
    """
    if not is_url(name):
        return pathlib.Path(name).expanduser().absolute()
    scheme, _, rest = str(name).partition("://")
    if scheme == "file" and rest.startswith("/"):
        return pathlib.Path(rest)
    if scheme != "gs":
        raise ValueError(
            f"{name}: expected gs://BUCKET/FOLDER, a path, or file:///PATH. The checkpoint library "
            "writes to no other bucket; mount it as a file system"
        )
    bucket, _, folder = rest.partition("/")
    if not bucket or not folder.strip("/"):
        raise ValueError(f"{name}: expected gs://BUCKET/FOLDER")
    if importlib.util.find_spec("gcsfs") is None:
        raise ValueError(
            f"{name} needs the package gcsfs, which is not installed: {extras.install('gcs')}"
        )
    # Cached listings would hide the files that other processes write.
    for protocol in ("gcs", "gs"):
        fsspec.config.conf.setdefault(protocol, {})["use_listings_cache"] = False
    return epath.Path(str(name))


def staging_folder(url: str) -> pathlib.Path:
    """Returns the local folder of this process for a run in a bucket; it has the run's name."""
    url = url.rstrip("/")
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    root = pathlib.Path(_STAGING).expanduser()
    return root / f"{digest}-{processes.index()}" / url.rpartition("/")[2]


def place(workdir: str | os.PathLike) -> tuple[pathlib.Path, Folder, "Mirror"]:
    """Returns the local folder of a run, its permanent folder, and the mirror between them.

    Both folders are the same unless `workdir` is a URL. The errors are those of `to_folder`.
    """
    permanent = to_folder(workdir)
    if not is_url(workdir):
        local = pathlib.Path(permanent)
        return local, local, Mirror(local, local)
    local = staging_folder(str(workdir))
    return local, permanent, Mirror(local, permanent)


class Mirror:
    """Copies files between a local folder and a bucket; does nothing if both are the same folder."""

    def __init__(self, local: pathlib.Path, remote: Folder):
        self._local = local
        self._remote = remote
        self._is_needed = local != remote
        self._known: dict[str, tuple[int, int]] = {}  # size and time of files that the bucket has
        self._pushed_at = -float("inf")

    def clear(self) -> None:
        """Removes the local files of an earlier run, except hidden ones such as the lock."""
        if not self._is_needed:
            return
        self._local.mkdir(parents=True, exist_ok=True)
        for path in self._local.iterdir():
            if not path.name.startswith("."):
                remove(path)
        self._known.clear()

    def push(self, min_interval_s: float = 0.0, pattern: str = "*") -> None:
        """Uploads files that match and have changed since they were last copied.

        Hidden files, logs and the folders that are written directly are left out. Nothing happens
        if the last push was less than `min_interval_s` seconds ago.
        """
        if not self._is_needed or time.monotonic() - self._pushed_at < min_interval_s:
            return
        for path in walk(self._local, (*_DIRECT, _LOCAL)):
            name = str(path.relative_to(self._local))
            signature = _signature(path)
            if path.name.startswith(".") or not path.match(pattern):
                continue
            if self._known.get(name) != signature:
                _upload(path, self._remote / name)
                self._known[name] = signature
        self._pushed_at = time.monotonic()

    def pull(self, *, with_trajectories: bool = False) -> int:
        """Downloads files that are missing here or differ in size; returns the number of files.

        Logs and checkpoints are left out, and trajectories unless they are asked for.
        """
        skipped = [name for name in (*_DIRECT, _LOCAL) if name != _TRAJECTORIES]
        skipped += [] if with_trajectories else [_TRAJECTORIES]
        count = 0
        for path in walk(self._remote, skipped) if self._is_needed else ():
            name = str(path.relative_to(self._remote))
            target, count = self._local / name, count + 1
            if target.is_file() and target.stat().st_size == _size(path):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            self._known[name] = _signature(target)
        return count

    def remove(self, names: Iterable[str]) -> None:
        """Removes files and folders of the bucket, given their names in the run folder."""
        for name in names if self._is_needed else ():
            remove(self._remote / name)
            self._known = {k: v for k, v in self._known.items() if k.split("/")[0] != name}


@functools.cache
def local_copy(run: str, *, with_trajectories: bool) -> pathlib.Path:
    """Returns a local folder with the files of a run, without checkpoints.

    A local path is returned as it is. A run in a bucket is copied to a temporary folder, which is
    removed when the program ends.

    Raises:
      FileNotFoundError: The bucket has no files there.
      ValueError: As of `to_folder`.
    """
    if not is_url(run):
        return pathlib.Path(run)
    remote = to_folder(run)
    temporary = tempfile.mkdtemp(prefix="agentgym_jax-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    local = pathlib.Path(temporary) / remote.name
    local.mkdir()
    if not Mirror(local, remote).pull(with_trajectories=with_trajectories):
        raise FileNotFoundError(f"{run} has no files of a run. Give the --workdir of a run")
    return local


def walk(folder: Folder, skipped: Iterable[str] = ()) -> Iterator[Folder]:
    """Yields the files below a folder, but enters no folder with a name in `skipped`.

    There are none if the folder does not exist.
    """
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path == folder:  # an object store can have an empty object in place of a folder
            continue
        if path.is_dir():
            if path.name not in skipped:
                yield from walk(path, skipped)
        else:
            yield path


def _signature(path: pathlib.Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _size(path: Folder) -> int:
    status = path.stat()
    return status.st_size if isinstance(status, os.stat_result) else status.length


def _upload(source: pathlib.Path, target: Folder) -> None:
    """Copies a file to a bucket, where the complete old or new file exists at any time."""
    if is_object_store(target):
        with source.open("rb") as file, target.open("wb") as sink:
            shutil.copyfileobj(file, sink)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.copyfile(source, partial)
    partial.replace(target)


def remove(path: Folder) -> None:
    """Removes a file or a folder if it exists."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
    elif is_object_store(path):
        epath.Path(path).rmtree(missing_ok=True)
    else:
        shutil.rmtree(path)
