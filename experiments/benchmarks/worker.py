"""The child's side of a comparison: a process that prepares one task and then measures on demand.

Every library is measured by a worker in an environment of its own; side_by_side.py starts them
and lets one at a time measure, in turn, so that what else the machine does meets all alike.
One JSON object a line, in on standard input, out on what was standard output.
"""

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable

# Runs the task once and says what it counted.
Run = Callable[[], dict]


def fastest(call: Callable[[], object], repeats: int = 8) -> float:
    """Seconds of the fastest of several calls; slow ones are called less often, the first compiles."""
    seconds: list[float] = []
    while len(seconds) <= repeats and sum(seconds[1:]) < 2.0:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def cpu_seconds() -> float:
    """Of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_gib() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def serve(tasks: dict[str, Callable[[dict], Run]], versions: dict[str, str]) -> None:
    """Answers until standard input closes.

    The first line is the task: `{"task": name, ...options}`. It is prepared and run once, which
    compiles; the answer has that first run's seconds. Every further line measures one run.

    Args:
      tasks: by name: from the options to what one run does.
      versions: of the libraries, for the record.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not belong to the answers

    def answer(record: dict) -> None:
        answers.write(json.dumps(record) + "\n")
        answers.flush()

    options = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    run = tasks[options["task"]](options)
    prepared = time.perf_counter()
    run()
    answer(
        dict(
            prepare_s=prepared - started,
            first_run_s=time.perf_counter() - prepared,
            versions=versions | {"python": platform.python_version()},
        )
    )
    for _ in sys.stdin:
        started, cpu = time.perf_counter(), cpu_seconds()
        record = run()
        seconds = time.perf_counter() - started
        answer(record | dict(wall_s=seconds, cpu_s=cpu_seconds() - cpu, peak_gib=peak_gib()))
