"""Runs Python in another process, in the root of this project unless a folder is given."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def run_python(*arguments, cwd=ROOT, timeout=None, **environment):
    """Returns the finished process, with its output as text.

    `environment` has changes of the environment variables; None removes one.
    """
    variables = os.environ | environment
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def output_of(*arguments, **options):
    """Returns the output of a program that must succeed; `options` are those of `run_python`."""
    done = run_python(*arguments, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def start_python(*arguments, **environment):
    """Starts Python with pipes for its output; `environment` adds variables."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
