"""What a person sees while a run goes: a live table on a terminal, plain lines elsewhere.

Calls only store numbers under a lock; drawing happens in a thread of its own a few times a
second, so callbacks from worker threads cost microseconds. In a notebook, in CI and in a
file every step is one line of text.
"""

import collections
import dataclasses
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

_DRAWS_PER_SECOND = 4
_PLAIN_PHASE_SECONDS = 15.0  # in plain mode a phase gets a line after this, twice this, ...
_ETA_STEPS = 20  # steps whose mean duration gives the ETA: horizons grow, old steps mislead
_COLUMN_WIDTH = 9


@dataclasses.dataclass(frozen=True)
class _Column:
    """Heading, metrics it may come from (the first present wins), format, factor."""

    heading: str
    names: tuple[str, ...]
    form: str
    factor: float = 1.0


# In the order in which they are dropped last on a narrow terminal.
_STEP_COLUMNS = (
    _Column("success", ("rollout/success",), ".1f", 100.0),
    _Column("loss", ("sft/loss", "dpo/loss"), ".4f"),
    _Column("accuracy", ("dpo/accuracy",), ".1f", 100.0),
    _Column("margin", ("dpo/margin",), ".4f"),
    _Column("round", ("agentevol/round",), ".0f"),
    _Column("kept", ("agentevol/kept",), ",.0f"),
    _Column("reward", ("rollout/reward_mean",), ".3f"),
    _Column("turns", ("rollout/turns_mean",), ".1f"),
    _Column("horizon", ("horizon/turns",), ".0f"),
    _Column("seconds", ("time/iteration_s",), ".1f"),
    _Column("tok/s", ("rate/decode_tokens_per_s", "rate/train_tokens_per_s"), ",.0f"),
    _Column("entropy", ("policy/entropy",), ".3f"),
    _Column("kl", ("policy/kl_k3", "policy/approx_kl"), ".4f"),
    _Column("grad", ("policy/grad_norm",), ".3f"),
    _Column("invalid", ("rollout/invalid_fraction",), ".1f", 100.0),
)
_EVAL_COLUMNS = (
    _Column("greedy", ("eval/success_greedy",), ".1f", 100.0),
    _Column("sampled", ("eval/success",), ".1f", 100.0),
    _Column("turns", ("eval/turns_mean",), ".1f"),
    _Column("episodes", ("eval/episodes", "eval/episodes_greedy"), ",.0f"),
)
_PERCENT = {"success", "accuracy", "greedy", "sampled", "invalid"}


def _cell(column: _Column, metrics: Mapping[str, float]) -> str | None:
    """The value as text; None if the metrics have none of the column's names."""
    for name in column.names:
        if name in metrics:
            value = float(metrics[name]) * column.factor
            text = format(value, column.form) if math.isfinite(value) else "not finite"
            return f"{text}%" if column.heading in _PERCENT and math.isfinite(value) else text
    return None


def _line(columns: Sequence[_Column], metrics: Mapping[str, float]) -> str:
    """`heading value` of every column that has a value."""
    cells = ((column.heading, _cell(column, metrics)) for column in columns)
    return "  ".join(f"{heading} {text}" for heading, text in cells if text is not None)


def format_count(number: int) -> str:
    """`832`, `12.4 thousand`, `0.67 million`, `7.62 billion`."""
    for size, name in ((1e9, "billion"), (1e5, "million"), (1e3, "thousand")):
        if number >= size:
            unit = 1e6 if name == "million" else size
            return f"{number / unit:.3g} {name}"
    return str(number)


def format_duration(seconds: float) -> str:
    """`42s`, `3m20s`, `5h07m`, `2d03h`."""
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
    """What runs now."""

    name: str
    done: int
    total: int
    note: str
    started: float  # time.monotonic()
    next_line_s: float = _PLAIN_PHASE_SECONDS  # seconds after the start, plain mode


def open_console(
    stream: IO[str] | None = None, *, is_terminal: bool | None = None, width: int | None = None
) -> Console:
    """Returns a rich console with colours and cursor movements on a terminal only.

    The stream itself says if it is one: FORCE_COLOR and the like, which notebooks and CI services
    set and rich believes, say nothing about cursor movements.

    Args:
      stream: where to write; standard output if None.
      is_terminal: overrides what the stream says.
      width: columns; None asks the terminal.
    """
    stream = sys.stdout if stream is None else stream
    if is_terminal is None:
        is_terminal = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    return Console(
        file=stream, force_terminal=is_terminal, force_jupyter=False, width=width, highlight=False
    )


class RunConsole:
    """Progress of one run. Thread-safe; usable as a context manager.

    `step`, `evaluation` take the metrics of that step under their table names
    (`metrics.METRICS`); what is absent is not shown.
    """

    def __init__(
        self,
        title: str,
        facts: Mapping[str, str],
        total_steps: int,
        *,
        first_step: int = 0,
        rows: int = 8,
        stream: IO[str] | None = None,
        live: bool | None = None,
        width: int | None = None,
    ):
        """Draws nothing yet.

        Args:
          title: such as `grpo on textcraft`.
          facts: header entries in order: model, environments, devices, workdir.
          total_steps: optimiser steps of the whole run.
          first_step: steps done before this start (a resumed run).
          rows: steps shown in the table.
          stream: where to write; standard output if None.
          live: True for the live table, False for plain lines; None decides by the stream.
          width: columns of the terminal; None asks it.
        """
        self._title = title
        self._facts = {key: str(value) for key, value in facts.items()}
        self._total_steps = total_steps
        self._done = first_step
        self._rows: collections.deque[tuple[int, dict[str, float]]] = collections.deque(maxlen=rows)
        self._evaluations: collections.deque[tuple[int, dict[str, float]]] = collections.deque(
            maxlen=4
        )
        self._notes: collections.deque[str] = collections.deque(maxlen=3)
        self._durations: collections.deque[float] = collections.deque(maxlen=_ETA_STEPS)
        self._phase: _Phase | None = None
        self._lock = threading.Lock()
        self._started = self._last_step_time = time.monotonic()
        self._announced: set[str] = set()  # phases that had a line in plain mode
        self._console = open_console(stream, is_terminal=live, width=width)
        if live is None:
            live = self._console.is_terminal
        self._live: Live | None = None
        if live:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=_DRAWS_PER_SECOND,
                # A stream that goes to a file must stay there.
                redirect_stdout=sys.stdout.isatty(),
                redirect_stderr=sys.stderr.isatty(),
            )
        self._rerouted: list[tuple[logging.StreamHandler, IO[str]]] = []

    def __enter__(self) -> "RunConsole":
        self._started = self._last_step_time = time.monotonic()
        if self._live is None:
            self._write(self._title)
            for key, value in self._facts.items():
                self._write(f"  {key}: {value}")
        else:
            before = (sys.stdout, sys.stderr)
            self._live.start(refresh=True)
            self._reroute_handlers(before)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._phase = None
        if self._live is not None:
            for handler, stream in self._rerouted:
                handler.setStream(stream)
            self._rerouted = []
            self._live.stop()

    def _reroute_handlers(self, before: tuple[IO[str], IO[str]]) -> None:
        """Sends log handlers through the live display.

        They hold the stream they were made with, which Live's replacement of sys.stderr
        does not reach: their lines would land inside the table.
        """
        now = (sys.stdout, sys.stderr)
        handlers = [*logging.getLogger().handlers, absl_logging.get_absl_handler().python_handler]
        for handler in handlers:
            if not isinstance(handler, logging.StreamHandler):
                continue
            for old, new in zip(before, now, strict=True):
                if handler.stream is old and new is not old:
                    self._rerouted.append((handler, old))
                    handler.setStream(new)
                    break

    def phase(self, name: str, done: int, total: int, note: str = "") -> None:
        """Shows what runs now: `phase("rollout", 57, 128, "1,204 tok/s")`. Cheap; call it often.

        Plain mode writes a line when a name is new, and then after 15, 30, 60, ... seconds.
        """
        now = time.monotonic()
        with self._lock:
            phase = self._phase
            if phase is None or phase.name != name:
                phase = _Phase(name, done, total, note, now)
            phase = dataclasses.replace(phase, done=done, total=total, note=note)
            is_new = name not in self._announced
            due = self._live is None and (is_new or now - phase.started >= phase.next_line_s)
            if due:
                self._announced.add(name)
            if due and not is_new:
                phase.next_line_s *= 2
            self._phase = phase
        if due:
            parts = [name, f"{done}/{total}" if done else "", note]
            if not is_new:
                parts.insert(2, format_duration(now - phase.started))
            self._write("  " + "  ".join(filter(None, parts)))

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done; `step` counts optimiser steps from 1, 0 is an evaluation before them."""
        now = time.monotonic()
        with self._lock:
            steps = step - self._done
            if steps > 0:
                seconds = (now - self._last_step_time) / steps
                if not self._durations:  # a warm start may lie before the first step
                    seconds = min(seconds, metrics.get("time/iteration_s", seconds))
                self._durations.extend([seconds] * min(steps, _ETA_STEPS))
            self._last_step_time = now
            self._done = step
            self._rows.append((step, dict(metrics)))
            self._phase = None
            eta = self._eta()
        if self._live is None:
            self._write(
                f"step {step}/{self._total_steps}  {_line(_STEP_COLUMNS, metrics)}  eta {eta}"
            )

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Results of the evaluation after `step` steps."""
        with self._lock:
            self._evaluations.append((step, dict(metrics)))
            self._phase = None
        if self._live is None:
            groups = _groups_text(metrics)
            self._write(
                f"evaluation at step {step}  {_line(_EVAL_COLUMNS, metrics)}"
                + (f"  [{groups}]" if groups else "")
            )

    def fact(self, key: str, value: str) -> None:
        """Adds an entry to the header that was not known at the start."""
        with self._lock:
            self._facts[key] = value
        if self._live is None:
            self._write(f"  {key}: {value}")

    def note(self, text: str) -> None:
        """A warning or event for the reader; the last three stay visible."""
        with self._lock:
            self._notes.append(text)
        if self._live is None:
            self._write(f"note: {text}")

    def _write(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _eta(self) -> str:
        """Time to the last step at the pace of the recent ones; caller holds the lock."""
        if not self._durations:
            return "unknown"
        mean = sum(self._durations) / len(self._durations)
        return format_duration(mean * max(0, self._total_steps - self._done))

    def _render(self) -> RenderableType:
        with self._lock:
            rows, evaluations = list(self._rows), list(self._evaluations)
            notes, phase = list(self._notes), self._phase
            done, eta = self._done, self._eta()
        now = time.monotonic()
        parts: list[RenderableType] = [self._header()]
        gone = f"{format_duration(now - self._started)} gone, eta {eta}"
        bars = [("steps", done, self._total_steps, gone)]
        if phase is not None:
            note = f"{format_duration(now - phase.started)}  {phase.note}"
            bars.append((phase.name, phase.done, phase.total, note))
        parts.append(_bars(bars, min(28, self._console.width // 4)))
        fixed = len(self._facts) + 2 * len(evaluations) + len(notes) + 14
        fitting = max(3, self._console.height - fixed)
        columns = max(2, (self._console.width - 8) // _COLUMN_WIDTH)
        if rows:
            parts.append(_step_table(rows[-fitting:], columns))
        if evaluations:
            parts.append(_evaluation_panel(evaluations))
        parts += [Text(f"! {note}", style="yellow", overflow="fold") for note in notes]
        return Group(*parts)

    def _header(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        with self._lock:
            facts = list(self._facts.items())
        for key, value in facts:
            grid.add_row(Text(key), Text(value))
        return Panel(grid, title=Text(self._title, style="bold"), title_align="left")


def _bars(bars: Sequence[tuple[str, int, int, str]], width: int) -> RenderableType:
    """A line each: name, bar (empty without a total), `done/total`, note."""
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


def _step_table(rows: Sequence[tuple[int, Mapping[str, float]]], columns: int) -> Table:
    """One row per step with as many of the columns in use as fit."""
    used = [
        column
        for column in _STEP_COLUMNS
        if any(_cell(column, metrics) is not None for _, metrics in rows)
    ][:columns]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("step", justify="right", no_wrap=True)
    for column in used:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for i, (step, metrics) in enumerate(rows):
        cells = [_cell(column, metrics) or "" for column in used]
        table.add_row(str(step), *cells, style="bold" if i == len(rows) - 1 else "")
    return table


def _groups_text(metrics: Mapping[str, float]) -> str:
    """`greedy: GoTo 92.0%  Open 45.5%`: success per group, sampled if greedy was not measured."""
    modes = {"greedy": "eval/success_greedy/", "sampled": "eval/success/"}
    for mode, prefix in modes.items():
        groups = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
        if groups:
            texts = (f"{group} {100 * value:.1f}%" for group, value in groups.items())
            return f"{mode}: {'  '.join(texts)}"
    return ""


def _change(old: Mapping[str, float], new: Mapping[str, float]) -> Text:
    """Change of success in points since the evaluation before, with sign and colour."""
    for name in ("eval/success_greedy", "eval/success"):
        if name in old and name in new:
            points = 100 * (new[name] - old[name])
            style = "green" if points > 0 else "red" if points < 0 else "dim"
            return Text(f"{points:+.1f}", style=style)
    return Text("")


def _evaluation_panel(evaluations: Sequence[tuple[int, Mapping[str, float]]]) -> RenderableType:
    """The last evaluations, newest last, with the groups of the newest."""
    used = [c for c in _EVAL_COLUMNS if any(_cell(c, m) is not None for _, m in evaluations)]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for heading in ("step", *(column.heading for column in used), "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    before: Mapping[str, float] = {}
    for step, metrics in evaluations:
        cells = [_cell(column, metrics) or "" for column in used]
        table.add_row(str(step), *cells, _change(before, metrics))
        before = metrics
    groups = _groups_text(evaluations[-1][1])
    body = Group(table, Text(groups, overflow="fold")) if groups else table
    return Panel(body, title=Text("evaluation"), title_align="left", border_style="cyan")
