"""Folders that are built once: whole or not there, by one process at a time."""

import contextlib
import fcntl
import hashlib
import logging
import os
import pathlib
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator

_LOGGER = logging.getLogger(__name__)
_SAMPLE_BYTES = 1 << 20
_SIGN_S = 30.0  # whoever waits for a server takes silence for its end


def fingerprint(paths: Iterable[pathlib.Path], *words: str) -> str:
    """Sixteen digits that change with the files or the words.

    Of a long file its length and three parts of a MiB are read, because a corpus may have gigabytes.
    """
    digest = hashlib.sha256("\0".join(words).encode())
    for path in paths:
        size = path.stat().st_size
        digest.update(f"\0{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for start in (0, max(0, size // 2 - _SAMPLE_BYTES // 2), max(0, size - _SAMPLE_BYTES)):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def say(text: str) -> None:
    """A line for the person at the terminal, at the beginning of something that takes long."""
    sys.stderr.write(f"searchqa: {text}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def signs_of_life(period_s: float = _SIGN_S) -> Iterator[None]:
    """Says now and then that it goes on, where no bar moves on a terminal."""
    began, is_over = time.monotonic(), threading.Event()

    def speak() -> None:
        while not is_over.wait(period_s):
            say(f"still building, {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=speak, daemon=True)
    if not sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        if thread.ident is not None:
            thread.join()


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Keeps other processes from building the same folder; they wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds {folder}; waiting for it")
            with signs_of_life():
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def appearing(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to fill, which gets its name when the block ends without an error."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    os.replace(partial, folder)


@contextlib.contextmanager
def appearing_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file to write, which gets its name when the block ends without an error."""
    partial = path.with_name(path.name + ".partial")
    yield partial
    os.replace(partial, path)
