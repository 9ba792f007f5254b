"""Files and folders that are built once per machine, by one process at a time.

Each file or folder is either complete or absent.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]

SIGN_S = 30.0  # seconds between progress lines; clients treat a longer silence as a dead server


def announcer(who: str) -> Say:
    """Returns a callback that prints the progress of a build to stderr, prefixed with `who: `."""

    def say(text: str) -> None:
        sys.stderr.write(f"{who}: {text}\n")
        sys.stderr.flush()

    return say


def build_once(
    folder: pathlib.Path, fill: Callable[[pathlib.Path], None], say: Say, *, anew: bool = False
) -> None:
    """Builds a folder unless it exists.

    Other processes that call this function meanwhile wait until the build ends. A build that fails
    leaves no files. A killed build leaves an unfinished folder, which the next build removes.

    Args:
      folder: Path of the folder, which exists only when it is complete.
      fill: Function that writes into the empty folder it receives. That folder is renamed to
          `folder` afterwards.
      say: Callback for progress, called every `SIGN_S` seconds, and once if another process builds.
      anew: True to build the folder even if it exists. Files that are open in the old folder stay
          readable.
    """
    if folder.exists() and not anew:
        return
    with locked(folder, say):
        if folder.exists() and not anew:  # another process was faster
            return
        with signs_of_life(say), appearing(folder) as unfinished:
            fill(unfinished)


@contextlib.contextmanager
def locked(path: pathlib.Path, say: Say) -> Iterator[None]:
    """Locks a file or folder for its build, so that other processes that want to build it wait.

    Args:
      path: Path of the file or folder. The lock is a file next to it and is released when the
          process ends for any reason.
      say: Callback that is called if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process builds {path}; waiting for it")
            with signs_of_life(say):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def signs_of_life(say: Say) -> Iterator[None]:
    """Reports progress every `SIGN_S` seconds unless stderr is a terminal."""
    began, is_over = time.monotonic(), threading.Event()

    def speak() -> None:
        while not is_over.wait(SIGN_S):
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
def appearing(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a temporary folder that replaces `folder` by a rename if the block succeeds."""
    partial = _partial(folder)
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir(parents=True)
    try:
        yield partial
        if folder.exists():
            replaced = folder.with_name(folder.name + ".replaced")
            shutil.rmtree(replaced, ignore_errors=True)
            os.replace(folder, replaced)
            os.replace(partial, folder)
            shutil.rmtree(replaced)
        else:
            os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)  # for example after a full disk
        raise


@contextlib.contextmanager
def appearing_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a temporary file path that is renamed to `path` if the block raises no error."""
    partial = _partial(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _partial(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".partial")
