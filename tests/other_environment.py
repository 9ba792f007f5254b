"""Virtual environments with packages that do not fit those of this project."""

import subprocess
import sys
import venv

import pytest

from tests.waiting import PATIENCE_S


def install(folder, packages):
    """Returns the interpreter of a new environment; skips the test if there is no package index."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "-q"]
    commands = [
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, *packages],
        [*pip, "--python", python, "install", "--no-compile", *packages],
    ]
    errors = []
    for command in commands:
        done = _run(command)
        if not done.returncode:
            return python
        errors.append(done.stderr)
    # A small package shows whether the index can be reached at all.
    if _run([*pip, "download", "--no-deps", "-d", str(folder / "small"), "six"]).returncode:
        pytest.skip("the package index cannot be reached")
    raise AssertionError("\n".join(errors))


def _run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
