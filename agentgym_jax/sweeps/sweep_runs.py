"""Trains the runs of a sweep on this machine, one after the other or several at the same time."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.runs import redact
from agentgym_jax.runs.atomic_files import disk_errors
from agentgym_jax.sweeps.expand import SweepRun, train_command
from agentgym_jax.sweeps.folder import Record, SweepFolder, available_memory_gib

_POLL_S = 0.2
_SHOWN_LINES = 5  # last lines of a failed run's log in the summary


@dataclasses.dataclass
class _Child:
    """Running process of a run; `slot` is the number of its share of the cores."""

    run: SweepRun
    process: subprocess.Popen
    slot: int
    started: float


def check_parallel(parallel: int, memory_gib: float | None) -> list[list[int]]:
    """Returns the cores of each of `parallel` simultaneous runs.

    With one run it has all cores of this process. Otherwise the shares are disjoint and equal.

    Raises:
      ConfigError: There are too few cores, or too little memory.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if parallel > max(1, len(cores)):
        raise ConfigError(
            f"--parallel={parallel}: this process may use {len(cores)} cores, and each run needs one"
        )
    available = available_memory_gib()
    if memory_gib is not None and available is not None and parallel * memory_gib > available:
        possible = int(available // memory_gib)
        remedy = f"Use --parallel={possible}" if possible else "Free memory, or change memory_gib"
        raise ConfigError(
            f"--parallel={parallel}: {parallel} x {memory_gib:g} GiB (memory_gib of the sweep) are "
            f"more than the {available:.1f} GiB that are available. {remedy}"
        )
    if parallel == 1:
        return [cores]
    share = len(cores) // parallel
    return [cores[i * share : (i + 1) * share] for i in range(parallel)]


class SweepRunner:
    """Trains the runs of a sweep.

    A run continues from its newest checkpoint. A run that another process trains is not started
    again: it occupies a slot until that process ends. When `stop` is set, all children get SIGTERM,
    save, and end. `command` returns the command of a run, given its folder and the interpreter.
    """

    def __init__(
        self,
        folder: SweepFolder,
        record: Record,
        slots: Sequence[Sequence[int]],
        stop: StopFlag,
        say: Callable[[str], None],
        command: Callable[[SweepRun, str, str], list[str]] = train_command,
    ):
        self._folder, self._record, self._slots = folder, record, slots
        self._stop, self._say, self._command = stop, say, command
        self._children: list[_Child] = []
        self._seconds: list[float] = []  # durations of the runs that finished in this call
        self._failed: list[SweepRun] = []
        self._done = 0
        self._busy: set[str] = set()  # names of runs that other processes train

    def run(self) -> list[SweepRun]:
        """Trains all unfinished runs, and returns those that failed."""
        total = len(self._record.runs)
        waiting = [run for run in self._record.runs if not self._is_finished(run)]
        self._done = total - len(waiting)
        self._say(f"{total} runs in {self._folder.path}, {self._done} finished before")
        with self._no_child_left():
            while (waiting or self._children) and not self._stop():
                self._start_runs(waiting)
                time.sleep(_POLL_S)
                self._collect()
            if self._stop():
                self._stop_children()
        return self._failed

    def _is_finished(self, run: SweepRun) -> bool:
        return self._folder.is_finished(run, self._record.total_steps[run.name])

    def _start_runs(self, waiting: list[SweepRun]) -> None:
        """Starts runs in free slots; removes them, and runs that others finished, from `waiting`."""
        busy = [run for run in waiting if self._folder.is_busy(run)]
        for name in [run.name for run in busy if run.name not in self._busy]:
            self._busy.add(name)
            self._event(f"waiting for another process that trains {name}")
        free = set(range(len(self._slots))) - {child.slot for child in self._children}
        for run in [run for run in waiting if run not in busy]:
            if len(free) <= len(busy):
                return
            waiting.remove(run)
            if self._is_finished(run):
                self._done += 1
                self._event(f"finished elsewhere {run.name}")
                continue
            self._children.append(self._start(run, free.pop()))

    def _start(self, run: SweepRun, slot: int) -> _Child:
        path = self._folder.run_path(run)
        steps = self._folder.steps_done(run)
        word = "start" if steps is None else f"resume after step {steps}:"
        log = self._folder.log_path(run)
        command = self._command(run, str(path), sys.executable)
        with disk_errors(log), open(log, "ab") as output, _on_cores(self._slots[slot]):
            environment = os.environ | ({} if len(self._slots) == 1 else self._limits(slot))
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self._event(f"{word} {run.name}")
        return _Child(run, process, slot, time.monotonic())

    def _limits(self, slot: int) -> dict[str, str]:
        """Returns environment variables that limit the thread pools of XLA and of BLAS."""
        names = ("PJRT_NPROC", "NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        return dict.fromkeys(names, str(len(self._slots[slot])))

    def _collect(self) -> None:
        """Removes children that have ended, and reports them."""
        for child in [child for child in self._children if child.process.poll() is not None]:
            self._children.remove(child)
            minutes = (time.monotonic() - child.started) / 60
            if child.process.returncode == 0:
                self._done += 1
                self._seconds.append(60 * minutes)
                self._event(f"finished {child.run.name} in {minutes:.1f} min")
            elif not self._stop():
                self._failed.append(child.run)
                status = child.process.returncode
                self._event(f"failed {child.run.name} with status {status}")

    def _stop_children(self) -> None:
        for child in self._children:
            child.process.terminate()
            self._event(f"stopping {child.run.name}")
        for child in self._children:
            child.process.wait()
        self._collect()

    @contextlib.contextmanager
    def _no_child_left(self) -> Iterator[None]:
        """Kills the children if an error or a second Ctrl-C ends this process."""
        try:
            yield
        finally:
            for child in self._children:
                child.process.kill()
                child.process.wait()

    def _event(self, text: str) -> None:
        total, failed = len(self._record.runs), len(self._failed)
        counts = f"{self._done} of {total} finished" + (f", {failed} failed" if failed else "")
        self._say(f"{time.strftime('%H:%M:%S')} {text} ({counts}{self._remaining()})")

    def _remaining(self) -> str:
        """Returns the estimated time to the end of the sweep; empty before a run has finished."""
        left = len(self._record.runs) - self._done - len(self._failed)
        if not self._seconds or not left:
            return ""
        mean = sum(self._seconds) / len(self._seconds)
        started = sum(time.monotonic() - child.started for child in self._children)
        seconds = max(0.0, left * mean - started) / min(len(self._slots), left)
        return f", about {max(1, round(seconds / 60))} min left"


@contextlib.contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Runs a block on some cores; a process that starts in the block inherits them."""
    if not cores:  # this system has no affinity
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def failure_lines(folder: SweepFolder, failed: Sequence[SweepRun]) -> list[str]:
    """Returns the summary of failed runs: name, log file and last lines of the log."""
    lines = [f"{len(failed)} runs failed; the same command tries them again:"] if failed else []
    for run in failed:
        path = folder.log_path(run)
        text = []
        if path.exists():  # it may have been deleted by hand
            text = path.read_text(encoding="utf-8", errors="replace").splitlines()
        last = [redact.text(line) for line in text if line.strip()][-_SHOWN_LINES:]
        lines += [f"{run.name}: {path}", *(f"    {line}" for line in last)]
    return lines
