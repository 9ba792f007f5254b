"""Files that exist completely or not at all, and errors of the disk with their remedies."""

import contextlib
import errno
import fcntl
import io
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import IO

from absl import logging

from agentgym_jax.runs import bucket

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class RunFolderError(RuntimeError):
    """Error for a folder that another process has locked or that cannot be written."""


def disk_advice(number: int | None) -> str:
    """Returns the remedy for an error of the operating system, given its `errno`."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return (
            "The disk or quota is full: free space and run the same command to resume, or choose "
            "another --workdir."
        )
    if number == errno.EFBIG:
        return "The limit on the size of a file is too small: raise it (ulimit -f), then resume."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "No permission to write there: choose another --workdir or fix its owner."
    if number == errno.EISDIR:
        return "A folder exists where a file is needed: give another name."
    if number in (errno.ENOTDIR, errno.EEXIST):
        return "A file exists where a folder is needed: choose another --workdir."
    if number == errno.ENAMETOOLONG:
        return "The name is too long: choose another --workdir."
    return "Check the path and its file system."


@contextlib.contextmanager
def disk_errors(path: bucket.Folder) -> Iterator[None]:
    """Converts an OSError while `path` is written to a RunFolderError that names the remedy."""
    try:
        yield
    except OSError as error:
        advice = disk_advice(error.errno)
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}. {advice}") from error


@contextlib.contextmanager
def folder_errors(folder: pathlib.Path) -> Iterator[None]:
    """Converts errors about files below `folder`, and those of full disks, like `disk_errors`."""
    try:
        yield
    except OSError as error:
        path = pathlib.Path(error.filename) if isinstance(error.filename, str) else None
        if error.errno not in _FULL and not (path and path.is_relative_to(folder)):
            raise
        with disk_errors(path or folder):
            raise


def try_lock(file: IO[str]) -> bool:
    """Locks an open file for this process; returns False if another process has locked it.

    Some network file systems have no locks. There, a warning is logged and the result is True.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        text = (
            "%s: this file system has no locks (%s); make sure that only one process writes there"
        )
        logging.log_first_n(logging.WARNING, text, 1, file.name, error.strerror)
    return True


def check_writable(path: pathlib.Path) -> None:
    """Raises RunFolderError if a file cannot be written to `path` later; nothing is created."""
    with disk_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a path beside `path`; its file replaces `path` if the block raises no error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            yield temporary
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


# In JSON, this writes a lone surrogate as its escape.
_LONE = "backslashreplace"


def write_atomic(path: str | os.PathLike, write: str | Callable[[IO[str]], None]) -> None:
    """Writes a text file; after a crash or an error, the complete old or new file exists.

    `write` is the text, or a function that writes the text to an open file. The path may be in a
    bucket, where an object appears when it is complete.
    """
    if bucket.is_object_store(path):
        text = io.StringIO(write if isinstance(write, str) else "")
        if callable(write):
            write(text)
        with disk_errors(bucket.to_folder(path)):
            bucket.to_folder(path).write_bytes(text.getvalue().encode("utf-8", _LONE))
        return
    with (
        replacing(pathlib.Path(path)) as temporary,
        open(temporary, "w", encoding="utf-8", errors=_LONE, newline="\n") as file,
    ):
        if callable(write):
            write(file)
        else:
            file.write(write)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: pathlib.Path) -> None:
    """Writes a folder to the disk; otherwise a power failure could undo a renaming in it."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # CIFS and some FUSE file systems
            raise
    finally:
        os.close(folder)
