"""Kills a training process repeatedly until it finishes: python -m tests.faults.kills

One process imports all modules once and forks for each start of the run, so that starts are fast.
The last line of the output is JSON with the number of kills and the points at which the signals
arrived.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sys
import time

import jax
from absl import logging

from agentgym_jax.jobs import job
from agentgym_jax.jobs.run import StopFlag
from tests.faults import runs

LIMIT_S = 1200.0  # time limit of one start in seconds; only ends runs that hang
STOPPED = 3  # exit status of a run that stopped on request before its last step
KINDS = ("SIGKILL", "SIGTERM", "SIGKILL in a checkpoint")


def main(argv):
    """Runs the command; returns 0 if the last start of the run ended normally."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("kinds", help="of the kills, comma-separated numbers into KINDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=runs.STEPS)
    parser.add_argument("--window", type=float, default=0.25, help="seconds in which a kill falls")
    parser.add_argument("--unfinished", action="store_true", help="leave the end to the caller")
    args = parser.parse_args(argv)
    draw = random.Random(args.seed)
    figures = collections.Counter()
    for number in args.kinds.split(","):
        kind = KINDS[int(number)]
        child = _start(args)
        hit = _disturb(child, kind, args, draw)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == STOPPED:
            hit = "stopped"
        elif os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise RuntimeError(f"{kind}: status {os.WEXITSTATUS(status)}")
        figures[f"{kind}: {hit}"] += 1
        if hit == "after the end":
            break
    status = 0 if args.unfinished else os.waitpid(_start(args), 0)[1]
    sys.stdout.write(json.dumps(figures) + "\n")
    return os.waitstatus_to_exitcode(status)


def _start(args):
    """Starts a training process; returns its process id."""
    child = os.fork()
    if child:
        return child
    jax.config.update("jax_disable_most_optimizations", True)
    job.build_layouts = lambda mesh, **_: (None, None)
    logging.set_verbosity(logging.ERROR)
    status = 1
    try:
        with open(f"{args.workdir}.log", "a") as log, StopFlag().installed() as stop:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            config = runs.config(args.url, steps=args.steps)
            status = STOPPED if runs.train(config, args.workdir, stop) else 0
    finally:
        os._exit(status)


def _disturb(child, kind, args, draw):
    """Sends the signal at a random point of the remaining run; returns a description of this point."""
    workdir = args.workdir
    first = _logged(workdir)
    deadline = time.monotonic() + LIMIT_S
    skipped = draw.randrange(2)
    seen = set()

    def is_time():
        if kind != KINDS[2]:
            # This start has written its first line of metrics; the signal follows after a random
            # delay.
            return _logged(workdir) > first
        folders = {path.parent.name for path in (workdir / "checkpoints").glob("*tmp*/*")}
        seen.update(folders)
        return bool(folders) and len(seen) > skipped

    while not is_time():
        if _has_ended(child):
            return "after the end"
        if time.monotonic() > deadline:
            raise RuntimeError(f"{kind}: nothing to kill within {LIMIT_S} s")
        time.sleep(0.0005)
    if kind != KINDS[2]:
        time.sleep(draw.uniform(0.0, args.window))
    if _has_ended(child):
        return "after the end"
    os.kill(child, signal.SIGTERM if kind == "SIGTERM" else signal.SIGKILL)
    if kind == "SIGTERM":
        return "sent"
    while not _has_ended(child):
        time.sleep(0.001)
    is_inside = any((workdir / "checkpoints").glob("*tmp*"))
    return "inside a checkpoint" if is_inside else "elsewhere"


def _has_ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _logged(workdir):
    """Returns the size of the metric file in bytes."""
    path = workdir / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
