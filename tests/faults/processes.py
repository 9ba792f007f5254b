"""Processes of a web navigation server, for tests that kill processes and check that they ended.

The module needs psutil.
"""

import psutil

from tests.sites import counting_site


def descendants(pid):
    """Returns all descendants of a process."""
    return psutil.Process(pid).children(recursive=True)


def browser(pid):
    """Returns Chromium's main process, neither its start script nor one of its children."""
    (found,) = (
        process
        for process in descendants(pid)
        if "--remote-debugging-pipe" in _command(process)
        and not any(word.startswith(("--type=", "/bin/sh")) for word in _command(process))
    )
    return found


def site(pid):
    """Returns the process of the counting site."""
    (found,) = (p for p in descendants(pid) if counting_site.__file__ in _command(p))
    return found


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:  # the process has ended meanwhile
        return []


def is_alive(process):
    """Returns True if the process runs; a zombie counts as ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
