"""Processes behind a server of web navigation, to be killed and to be gone. Needs psutil."""

import psutil

from tests.faults import counting_site


def descendants(pid):
    """Processes that this one started, and those that they started."""
    return psutil.Process(pid).children(recursive=True)


def browser(pid):
    """Chromium, without the shell script that may start it and the processes that it starts."""
    (found,) = (
        process
        for process in descendants(pid)
        if "--remote-debugging-pipe" in _command(process)
        and not any(word.startswith(("--type=", "/bin/sh")) for word in _command(process))
    )
    return found


def site(pid):
    """The counting site."""
    (found,) = (p for p in descendants(pid) if counting_site.__file__ in _command(p))
    return found


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


def is_alive(process):
    """Whether it runs; one that ended and that nobody has asked for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
