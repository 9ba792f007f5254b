"""Folder for the browser's files, which is removed even if this process is killed."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from agentgym_envs.base.environment import SetupError
from agentgym_envs.processes import exists

_PREFIX = "agentgym-browser-"


# The path of a socket has at most 107 bytes. A folder below the root needs 34 of them, and
# Chromium's socket in that folder 54 (/playwright_chromiumdev_profile-XXXXXX/SingletonSocket).
_LONGEST_ROOT = 107 - 34 - 54
_SHORT_ROOTS = ("/tmp", "/var/tmp")


def _root() -> pathlib.Path:
    """Returns the folder for temporary files, or a shorter one if its path is too long for sockets.

    Raises:
      SetupError: No folder with a short path is writable.
    """
    wanted = tempfile.gettempdir()
    for root in (wanted, *_SHORT_ROOTS):
        if len(os.fsencode(root)) <= _LONGEST_ROOT and os.access(root, os.W_OK | os.X_OK):
            return pathlib.Path(root)
    raise SetupError(
        f"webarena: the browser needs a folder with a path of at most {_LONGEST_ROOT} bytes, found "
        f"{wanted}, and {' and '.join(_SHORT_ROOTS)} cannot be written: set TMPDIR to a short path"
    )


def new_folder() -> pathlib.Path:
    """Makes a folder of this process and removes the folders of processes that are gone.

    Raises:
      SetupError: No folder has a path that is short enough.
    """
    root = _root()
    for folder in root.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return pathlib.Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


@contextlib.contextmanager
def used_for_temporary_files(folder: pathlib.Path) -> Iterator[None]:
    """Makes new processes use the folder for their temporary files while the context is open."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
