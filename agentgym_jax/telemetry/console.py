"""Progress display of a run: a live table on a terminal, one line per step elsewhere.

Calls only store numbers under a lock, so they take microseconds; a thread draws the table.
"""

import collections
import contextlib
import dataclasses
import itertools
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from absl import logging as absl_logging
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_Logged = tuple[int, Mapping[str, float]]  # step number and metrics of the step

# in plain mode a phase prints a line after this time, and again each time the elapsed time doubles
_PLAIN_PHASE_SECONDS = 15.0
_ETA_STEPS = 20  # steps averaged for the ETA; earlier steps would mislead, because horizons grow
_SHOWN_STEPS = 8
_COLUMN_WIDTH = 9


@dataclasses.dataclass(frozen=True)
class _Column:
    """Column of the table; the first one of the metrics `names` that is present is shown."""

    heading: str
    names: tuple[str, ...]
    form: str

    def cell(self, metrics: Mapping[str, float]) -> str | None:
        """Returns the column's value as text; None if none of its metrics is present."""
        value = next((float(metrics[name]) for name in self.names if name in metrics), None)
        if value is None:
            return None
        return format(value, self.form) if math.isfinite(value) else "not finite"


# Columns in order of priority: the last ones are dropped first on a narrow terminal.
_STEP_COLUMNS = (
    _Column("success", ("rollout/success",), ".1%"),
    _Column("loss", ("sft/loss", "dpo/loss"), ".4f"),
    _Column("accuracy", ("dpo/accuracy",), ".1%"),
    _Column("margin", ("dpo/margin",), ".4f"),
    _Column("round", ("agentevol/round",), ".0f"),
    _Column("kept", ("agentevol/kept",), ",.0f"),
    _Column("reward", ("rollout/reward_mean",), ".3f"),
    _Column("judge", ("judge/score_mean",), ".3f"),
    _Column("turns", ("rollout/turns_mean",), ".1f"),
    _Column("horizon", ("horizon/turns",), ".0f"),
    _Column("seconds", ("time/iteration_s",), ".1f"),
    _Column("tok/s", ("rate/decode_tokens_per_s", "rate/train_tokens_per_s"), ",.0f"),
    _Column("entropy", ("policy/entropy",), ".3f"),
    _Column("kl", ("policy/kl_k3", "policy/approx_kl"), ".4f"),
    _Column("grad", ("policy/grad_norm",), ".3f"),
    _Column("invalid", ("rollout/invalid_fraction",), ".1%"),
)
_EVAL_COLUMNS = (
    _Column("greedy", ("eval/success_greedy",), ".1%"),
    _Column("sampled", ("eval/success",), ".1%"),
    _Column("turns", ("eval/turns_mean",), ".1f"),
    _Column("episodes", ("eval/episodes", "eval/episodes_greedy"), ",.0f"),
)


def _line(columns: Sequence[_Column], metrics: Mapping[str, float]) -> str:
    cells = ((column.heading, column.cell(metrics)) for column in columns)
    return "  ".join(f"{heading} {text}" for heading, text in cells if text is not None)


def format_count(number: int) -> str:
    """Formats a count, such as `832`, `12.4 thousand`, `0.67 million`, `7.62 billion`."""
    for size, name in ((1e9, "billion"), (1e5, "million"), (1e3, "thousand")):
        if number >= size:
            unit = 1e6 if name == "million" else size
            return f"{number / unit:.3g} {name}"
    return str(number)


def format_duration(seconds: float) -> str:
    """Formats a duration, such as `42s`, `3m20s`, `5h07m`, `2d03h`."""
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


@dataclasses.dataclass
class _Phase:
    """Activity in progress, such as a rollout."""

    name: str
    done: int
    total: int
    note: str
    started: float  # time.monotonic()
    next_line_s: float = _PLAIN_PHASE_SECONDS  # seconds since `started`, for plain mode

    def times(self, now: float) -> str:
        """Returns the time gone and, once a part is done, an estimate of the time left."""
        gone = now - self.started
        if not 0 < self.done < self.total:
            return format_duration(gone)
        left = gone * (self.total - self.done) / self.done
        return f"{format_duration(gone)}, {format_duration(left)} left"


def open_console(
    stream: IO[str] | None = None, *, is_terminal: bool | None = None, width: int | None = None
) -> Console:
    """Returns a rich console that uses colours and cursor movements only on a terminal.

    FORCE_COLOR and similar variables are ignored: notebooks set them but may not support cursor
    movements. `is_terminal` and `width` override the properties of the stream.
    """
    stream = sys.stdout if stream is None else stream
    if is_terminal is None:
        is_terminal = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    return Console(
        file=stream, force_terminal=is_terminal, force_jupyter=False, width=width, highlight=False
    )


class RunConsole:
    """Progress display of one run. Thread-safe; usable as a context manager."""

    def __init__(
        self,
        title: str,
        facts: Mapping[str, str],
        total_steps: int,
        *,
        first_step: int = 0,
        stream: IO[str] | None = None,
        live: bool | None = None,
        width: int | None = None,
    ):
        """Prepares the display without drawing it.

        `facts` are the entries of the header. A resumed run starts at `first_step`. True for `live`
        selects the live table, False plain lines; with None the kind of stream decides.
        """
        self._title = title
        self._facts = {key: str(value) for key, value in facts.items()}
        self._total_steps = total_steps
        self._done = first_step
        self._rows: collections.deque[_Logged] = collections.deque(maxlen=_SHOWN_STEPS)
        self._evaluations: collections.deque[_Logged] = collections.deque(maxlen=4)
        self._notes: collections.deque[str] = collections.deque(maxlen=3)
        self._durations: collections.deque[float] = collections.deque(maxlen=_ETA_STEPS)
        self._phase: _Phase | None = None
        self._lock = threading.Lock()
        self._started = self._last_step_time = time.monotonic()
        self._announced: set[str] = set()  # phases that already have a printed line in plain mode
        self._console = open_console(stream, is_terminal=live, width=width)
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                # output that the user redirected to a file must still reach that file
                redirect_stdout=sys.stdout.isatty(),
                redirect_stderr=sys.stderr.isatty(),
            )
        self._restore_handlers = contextlib.ExitStack()

    def __enter__(self) -> "RunConsole":
        self._write_plain(self._title)
        for key, value in self._facts.items():
            self._write_plain(f"  {key}: {value}")
        if self._live is not None:
            before = (sys.stdout, sys.stderr)
            self._live.start(refresh=True)
            self._reroute_handlers(before)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._phase = None
        if self._live is not None:
            self._restore_handlers.close()
            self._live.stop()

    def _reroute_handlers(self, before: tuple[IO[str], IO[str]]) -> None:
        """Lets log handlers, which keep their stream, write above the live table."""
        handlers = [*logging.getLogger().handlers, absl_logging.get_absl_handler().python_handler]
        for handler in handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in before:
                self._restore_handlers.callback(handler.setStream, handler.stream)
                now = (sys.stdout, sys.stderr)
                handler.setStream(now[before.index(handler.stream)])

    def phase(self, name: str, done: int, total: int, note: str = "") -> None:
        """Shows the current activity: `phase("rollout", 57, 128, "1,204 tok/s")`.

        In plain mode the first call with a name prints a line, and so do calls after 15, 30, 60,
        ... seconds.
        """
        now = time.monotonic()
        with self._lock:
            phase = self._phase
            if phase is None or phase.name != name:
                phase = _Phase(name, done, total, note, now)
            phase = dataclasses.replace(phase, done=done, total=total, note=note)
            elapsed = now - phase.started
            is_new = name not in self._announced
            is_due = elapsed >= phase.next_line_s
            self._announced.add(name)
            if is_due and not is_new:
                phase.next_line_s *= 2
            self._phase = phase
        if is_new or is_due:
            duration = "" if is_new else phase.times(now)
            parts = [name, f"{done}/{total}" if done else "", duration, note]
            self._write_plain("  " + "  ".join(filter(None, parts)))

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows the metrics of a finished step; step 0 is an evaluation before the first step."""
        now = time.monotonic()
        with self._lock:
            steps = step - self._done
            if steps > 0:
                seconds = (now - self._last_step_time) / steps
                if not self._durations:  # a warm start may precede the first step
                    seconds = min(seconds, metrics.get("time/iteration_s", seconds))
                self._durations.extend([seconds] * min(steps, _ETA_STEPS))
            self._last_step_time = now
            self._done = step
            self._rows.append((step, dict(metrics)))
            self._phase = None
            eta = self._eta()
        line = _line(_STEP_COLUMNS, metrics)
        self._write_plain(f"step {step}/{self._total_steps}  {line}  eta {eta}")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows the results of the evaluation after `step` steps."""
        with self._lock:
            self._evaluations.append((step, dict(metrics)))
            self._phase = None
        groups = _groups_text(metrics)
        suffix = f"  [{groups}]" if groups else ""
        self._write_plain(f"evaluation at step {step}  {_line(_EVAL_COLUMNS, metrics)}{suffix}")

    def fact(self, key: str, value: str) -> None:
        """Adds an entry to the header after the start."""
        with self._lock:
            self._facts[key] = value
        self._write_plain(f"  {key}: {value}")

    def note(self, text: str) -> None:
        """Shows a warning or an event; the latest three are visible."""
        with self._lock:
            self._notes.append(text)
        self._write_plain(f"note: {text}")

    def _write_plain(self, text: str) -> None:
        if self._live is None:
            self._console.print(Text(text), soft_wrap=True)

    def _eta(self) -> str:
        """Returns the estimated remaining time; the caller holds the lock."""
        if not self._durations:
            return "unknown"
        mean = sum(self._durations) / len(self._durations)
        return format_duration(mean * max(0, self._total_steps - self._done))

    def _render(self) -> RenderableType:
        now = time.monotonic()
        with self._lock:
            gone = f"{format_duration(now - self._started)} gone, eta {self._eta()}"
            bars = [("steps", self._done, self._total_steps, gone)]
            if self._phase is not None:
                phase = self._phase
                note = f"{phase.times(now)}  {phase.note}"
                bars.append((phase.name, phase.done, phase.total, note))
            width = self._console.width
            parts = [_header(self._title, self._facts), _bars(bars, min(28, width // 4))]
            fixed = len(self._facts) + 2 * len(self._evaluations) + len(self._notes) + 14
            fitting = max(3, self._console.height - fixed)
            columns = max(2, (width - 8) // _COLUMN_WIDTH)
            if self._rows:
                parts.append(_table(_STEP_COLUMNS, list(self._rows)[-fitting:], columns))
            if self._evaluations:
                parts.append(_evaluation_panel(self._evaluations))
            parts += [Text(f"! {note}", style="yellow", overflow="fold") for note in self._notes]
        return Group(*parts)


def _header(title: str, facts: Mapping[str, str]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in facts.items():
        grid.add_row(Text(key), Text(value))
    return Panel(grid, title=Text(title, style="bold"), title_align="left")


def _bars(bars: Sequence[tuple[str, int, int, str]], width: int) -> RenderableType:
    """Returns one line per bar: name, bar (empty without a total), `done/total`, note."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=12)
    grid.add_column(width=width)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for name, done, total, note in bars:
        bar: RenderableType = Text("")
        if total:
            bar = ProgressBar(total=total, completed=min(done, total), width=width)
            note = f"{done}/{total}  {note}"
        grid.add_row(Text(name, style="bold"), bar, Text(note))
    return grid


def _table(
    columns: Sequence[_Column], rows: Sequence[_Logged], most: int, changes: Sequence[Text] = ()
) -> Table:
    """Returns a table with one row per step and at most `most` of the columns with a value."""
    used = [c for c in columns if any(c.cell(metrics) is not None for _, metrics in rows)][:most]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    headings = ["step", *(column.heading for column in used), "change"]
    for heading in headings if changes else headings[:-1]:
        table.add_column(heading, justify="right", no_wrap=True)
    for i, (step, metrics) in enumerate(rows):
        cells = [column.cell(metrics) or "" for column in used]
        table.add_row(str(step), *cells, *changes[i : i + 1])
    table.rows[-1].style = "bold"
    return table


def _groups_text(metrics: Mapping[str, float]) -> str:
    """Returns success by group, such as `greedy: GoTo 92.0%  Open 45.5%`."""
    modes = {"greedy": "eval/success_greedy/", "sampled": "eval/success/"}
    for mode, prefix in modes.items():
        groups = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
        if groups:
            texts = (f"{group} {value:.1%}" for group, value in groups.items())
            return f"{mode}: {'  '.join(texts)}"
    return ""


def _change(old: Mapping[str, float], new: Mapping[str, float]) -> Text:
    """Returns the change of success since the previous evaluation, in percentage points."""
    for name in ("eval/success_greedy", "eval/success"):
        if name in old and name in new:
            points = 100 * (new[name] - old[name])
            style = "green" if points > 0 else "red" if points < 0 else "dim"
            return Text(f"{points:+.1f}", style=style)
    return Text("")


def _evaluation_panel(evaluations: Sequence[_Logged]) -> RenderableType:
    """Returns a panel with the latest evaluations, and the groups of the newest one."""
    metrics = [{}, *(metrics for _, metrics in evaluations)]
    changes = [_change(old, new) for old, new in itertools.pairwise(metrics)]
    table = _table(_EVAL_COLUMNS, evaluations, len(_EVAL_COLUMNS), changes)
    groups = _groups_text(evaluations[-1][1])
    body = Group(table, Text(groups, overflow="fold")) if groups else table
    return Panel(body, title=Text("evaluation"), title_align="left", border_style="cyan")
