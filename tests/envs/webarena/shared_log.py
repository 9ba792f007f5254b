"""The tiny site as an environment that logs the start and end of its shared resource."""

import contextlib
import dataclasses
import os
import pathlib

from tests.envs.webarena import browser_pages


def write(word):
    with pathlib.Path(os.environ["SHARED_LOG"]).open("a") as log:
        log.write(f"{word}\n")


@contextlib.contextmanager
def shared():
    write("begin")
    yield
    write("end")


def make_served_environment():
    served = browser_pages.make_served_environment()
    return dataclasses.replace(served, prepare=lambda: write("worker"), shared=shared)
