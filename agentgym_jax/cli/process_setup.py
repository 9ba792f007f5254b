"""Setup of a process that trains or samples: heaps, secrets in the log, compiled programs."""

import ctypes
import os
import pathlib

import jax
from absl import logging

from agentgym_jax.mesh import cluster
from agentgym_jax.runs.redact import LogFilter

CACHE = "~/.cache/agentgym_jax/xla"  # folder of compiled programs, shared by runs
_ARENA_MAX = -8  # constant M_ARENA_MAX of glibc's malloc.h
_ARENAS = 4


def limit_arenas() -> None:
    """Limits glibc to four heaps; must be called before the first threads start.

    glibc creates up to eight heaps per core, and each heap keeps its peak size. The threads that
    write checkpoints use arbitrary heaps, so memory would grow until all heaps have been used.
    MALLOC_ARENA_MAX overrides the limit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, _ARENAS)


def prepare() -> None:
    """Limits heaps, hides secrets in the log, joins the processes that JAX has connected, and caches
    compiled programs, unless JAX's settings name a cache or disable it. A second call changes nothing.
    """
    protect()
    cluster.join_connected()
    settings = jax.config.values
    if settings["jax_enable_compilation_cache"] and not settings["jax_compilation_cache_dir"]:
        cache_programs(CACHE)


def protect() -> None:
    """Limits heaps, and hides secrets in the log."""
    limit_arenas()
    handler = logging.get_absl_handler()
    if not any(isinstance(known, LogFilter) for known in handler.filters):
        handler.addFilter(LogFilter())


def cache_programs(folder: str) -> None:
    """Keeps compiled programs in a folder; an empty name disables the cache."""
    if not folder:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    try:
        cache = pathlib.Path(folder).expanduser()
        cache.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(cache, os.W_OK)
    except (RuntimeError, OSError):  # RuntimeError: the user has no home folder
        is_writable = False
    if not is_writable:  # JAX would warn at every program
        logging.warning("compiled programs are not kept: give --compilation_cache=FOLDER")
        return
    jax.config.update("jax_compilation_cache_dir", str(cache))
    # small programs are cached too, because a start compiles dozens of them
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
