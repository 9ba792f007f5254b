"""A folder for what a browser writes, which somebody removes even if this process is killed."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

_PREFIX = "agentgym-browser-"


def new_folder() -> pathlib.Path:
    """A folder of this process; those of processes that are gone are removed."""
    root = pathlib.Path(tempfile.gettempdir())
    for folder in root.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not _exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return pathlib.Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it exists and belongs to someone else
    return True


@contextlib.contextmanager
def used_for_temporary_files(folder: pathlib.Path) -> Iterator[None]:
    """Within it, processes that are started put their temporary files there."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
