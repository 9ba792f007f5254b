"""Files and folders that are built once on a machine: whole or not there, by one process at a time."""

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

SIGN_S = 30.0  # whoever waits for a server takes silence for its end


def announcer(who: str) -> Say:
    """Tells the person at the terminal about something that takes long, a line at a time.

    Args:
      who: stands in front of each line.
    """

    def say(text: str) -> None:
        sys.stderr.write(f"{who}: {text}\n")
        sys.stderr.flush()

    return say


def build_once(
    folder: pathlib.Path, fill: Callable[[pathlib.Path], None], say: Say, *, anew: bool = False
) -> None:
    """Builds a folder that is not there yet.

    Processes that ask at the same time wait for the one that builds. A build that fails leaves
    nothing; one that is killed leaves an unfinished folder, which the next one removes.

    Args:
      folder: which; it exists only when it is whole.
      fill: writes into the empty folder that it is given, which gets its name afterwards.
      say: is told who is waited for and, now and then, that the building goes on.
      anew: build it even if it is there; whoever reads the old one may go on doing so.
    """
    if folder.exists() and not anew:
        return
    with locked(folder, say):
        if folder.exists() and not anew:  # another process was quicker
            return
        with signs_of_life(say), appearing(folder) as unfinished:
            fill(unfinished)


@contextlib.contextmanager
def locked(path: pathlib.Path, say: Say) -> Iterator[None]:
    """Keeps other processes from building the same thing; they wait.

    Args:
      path: of the thing; the lock is a file beside it, and ends with the process, however that ends.
      say: is told if another process has it.
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
    """Says now and then that it goes on, unless at a terminal, where bars move."""
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
    """A folder to fill, which gets its name, in place of an older one, if the block has no error."""
    partial = _partial(folder)
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
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
        shutil.rmtree(partial, ignore_errors=True)  # of a full disk, say
        raise


@contextlib.contextmanager
def appearing_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file to write, which gets its name if the block ends without an error."""
    partial = _partial(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _partial(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".partial")
