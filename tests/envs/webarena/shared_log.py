"""The tiny site as an environment that writes down when what its workers share begins and ends."""

import contextlib
import dataclasses
import os
import pathlib

import browser_pages


def write(word):
    with pathlib.Path(os.environ["SHARED_LOG"]).open("a") as log:
        log.write(f"{word}\n")


@contextlib.contextmanager
def shared():
    write("begin")
    yield
    write("end")


def make_kind():
    kind = browser_pages.make_kind()
    return dataclasses.replace(kind, prepare=lambda: write("worker"), shared=shared)
