"""How many heaps the C library keeps: a process that runs for days must not grow with its threads."""

import ctypes
import os

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS = 4


def limit_arenas() -> None:
    """At most four heaps from now on; called before the first threads start.

    glibc gives threads up to eight heaps a core, and each keeps the most it ever held. Every
    checkpoint is written by new threads, in whatever heap they get, so that the process grows by
    some MiB a heap until all of them have written one: with 64 cores that are 512. The environment
    variable MALLOC_ARENA_MAX has the last word. Does nothing where there is no glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, _ARENAS)
