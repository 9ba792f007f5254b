"""The memory allocator's limit: all threads share a few heaps, however many cores there are."""

import ctypes
import pathlib
import re

import pytest

from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[2]

# Source code of the first lines of every entry point.
ENTRY = """
import sys
from absl import flags
from agentgym_jax.cli import command_setup

flags.FLAGS([sys.argv[0], "--compilation_cache="])
command_setup.prepare()
"""
ALONE = """
from agentgym_jax.cli.process_setup import limit_arenas

limit_arenas()
"""
# Source code of forty threads that use memory at the same time.
THREADS = """
import ctypes, threading

c = ctypes.CDLL(None)
c.malloc.restype = c.fdopen.restype = ctypes.c_void_p
c.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
together = threading.Barrier(40)

def hold():
    c.malloc(100_000)
    together.wait()

threads = [threading.Thread(target=hold) for _ in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = c.fdopen(1, b"w")
c.malloc_info(0, out)
c.fflush(ctypes.c_void_p(out))
"""


def heaps(before, **environment):
    """Returns the number of heaps at the end of a program that starts with `before`."""
    variables = {"MALLOC_ARENA_MAX": None} | environment
    return len(re.findall("<heap ", output_of("-c", before + THREADS, **variables)))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="no glibc")
def test_forty_threads_share_four_heaps_by_default():
    assert 1 < heaps(ENTRY) <= 4
    assert heaps(ALONE, MALLOC_ARENA_MAX="7") == 7
