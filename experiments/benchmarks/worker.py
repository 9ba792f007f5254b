"""Child process of a comparison: it prepares one task and then measures on demand.

Each library has a worker in a separate virtual environment. side_by_side.py starts the workers and
lets them measure alternately, one at a time, so that other load on the machine affects all workers
equally. Requests arrive as lines of JSON on standard input. Results are written as lines of JSON to
the original standard output.
"""

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable

# Function that runs the task once and returns its counts, such as tokens.
Run = Callable[[], dict]


def fastest(call: Callable[[], object], repeats: int = 8) -> float:
    """Returns the seconds of the fastest of several calls; slow functions are called less often.

    The first call compiles.
    """
    seconds: list[float] = []
    while len(seconds) <= repeats and sum(seconds[1:]) < 2.0:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def cpu_seconds() -> float:
    """Returns the CPU seconds of all threads of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_gib() -> float:
    """Returns the largest resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def serve(tasks: dict[str, Callable[[dict], Run]], versions: dict[str, str]) -> None:
    """Answers requests until standard input closes.

    The first line is the task: `{"task": name, ...options}`. The task is prepared and run once,
    which compiles; the answer has the seconds of this first run. Every further line measures one
    run.

    Args:
      tasks: Dictionary from name to a function that takes the options and returns the run to
          measure.
      versions: Versions of the libraries, for the record.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output that libraries print out of the answers

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
