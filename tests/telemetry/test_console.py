import io
import os
import pty
import re
import subprocess
import sys
import threading
import time
import types

import pytest

from agentgym_jax.telemetry import console as console_module
from agentgym_jax.telemetry.console import (
    _EVAL_COLUMNS,
    _STEP_COLUMNS,
    RunConsole,
    format_count,
    format_duration,
    open_console,
)
from agentgym_jax.telemetry.metrics import lookup
from tests.run_python import output_of
from tests.waiting import PATIENCE_S, until

FACTS = {"model": "tiny [test]", "devices": "8 x cpu"}
STEP = {"rollout/success": 0.4375, "rollout/turns_mean": 4.2, "horizon/turns": 5.0}
EVALUATION = {"eval/success": 0.25, "eval/success_greedy": 0.5, "eval/success_greedy/GoTo": 0.9}


def plain_run(use):
    stream = io.StringIO()
    with RunConsole("grpo", FACTS, 10, stream=stream) as console:
        use(console)
    return stream.getvalue()


def live_run(use, width=110):
    stream = io.StringIO()
    with RunConsole("grpo", FACTS, 10, stream=stream, live=True, width=width) as console:
        use(console)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


def last_frame(text):
    return text[text.rindex("╭─ grpo") :]


def test_a_log_file_gets_one_line_per_step_without_escape_codes():
    text = plain_run(lambda c: [c.step(1, STEP), c.step(2, STEP)])
    lines = text.splitlines()
    assert lines[:3] == ["grpo", "  model: tiny [test]", "  devices: 8 x cpu"]
    assert lines[3].startswith("step 1/10  success 43.8%  turns 4.2  horizon 5  eta ")
    assert len(lines) == 5
    assert "\x1b" not in text


def test_a_log_file_names_each_phase_once():
    def use(console):
        for step in range(1, 4):
            for done in range(3):
                console.phase("rollout", done, 2, "compiling first" if step == 1 else "")
            console.step(step, STEP)

    lines = plain_run(use).splitlines()[3:]
    assert lines[0] == "  rollout  compiling first"
    assert [line[:4] for line in lines[1:]] == ["step"] * 3


def test_a_long_phase_logs_lines_at_doubling_intervals(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now[0])

    def use(console):
        for second in range(130):
            now[0] = float(second)
            console.phase("warm start", second, 300)

    lines = plain_run(use).splitlines()[3:]
    assert lines == [
        "  warm start",
        "  warm start  15/300  15s, 4m45s left",
        "  warm start  30/300  30s, 4m30s left",
        "  warm start  60/300  1m00s, 4m00s left",
        "  warm start  120/300  2m00s, 3m00s left",
    ]


NOTEBOOK_PROGRAM = """
from agentgym_jax.telemetry.console import RunConsole

with RunConsole("grpo", {"model": "tiny"}, 30) as console:
    console.fact("parameters", "0.67 million")
    for step in range(1, 31):
        for done in range(50):
            console.phase("rollout", done, 50)
        console.step(step, {"rollout/success": 0.5})
    console.note("slow")
"""


def test_forced_colours_do_not_enable_the_live_table_in_a_pipe():
    """Checks environment variables with which notebooks and CI force colours in a pipe."""
    forced = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TTY_COMPATIBLE": "1"}
    output = output_of("-c", NOTEBOOK_PROGRAM, **forced, TERM="xterm-256color")
    lines = output.splitlines()
    assert lines[:4] == ["grpo", "  model: tiny", "  parameters: 0.67 million", "  rollout"]
    assert len(lines) == 3 + 1 + 30 + 1
    assert "\x1b" not in output


def test_output_to_a_pipe_has_no_colours_even_if_forced(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    open_console(stream).print("[bold red]success[/] 0.5")
    assert stream.getvalue() == "success 0.5\n"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (832, "832"),
        (12_400, "12.4 thousand"),
        (669_568, "0.67 million"),
        (7_615_616_512, "7.62 billion"),
    ],
)
def test_counts_are_formatted_in_words(number, text):
    assert format_count(number) == text


def test_a_log_file_gets_evaluations_and_notes():
    text = plain_run(lambda c: [c.evaluation(4, EVALUATION), c.note("textcraft restarted")])
    assert "evaluation at step 4  greedy 50.0%  sampled 25.0%  [greedy: GoTo 90.0%]" in text
    assert "note: textcraft restarted" in text


def test_long_lines_are_not_wrapped_in_a_log_file():
    text = plain_run(lambda c: c.note("x" * 500))
    assert "x" * 500 in text


def test_the_live_table_shows_header_steps_evaluation_and_notes():
    def use(console):
        for step in range(1, 13):
            console.step(step, STEP)
        console.evaluation(12, {**EVALUATION, "eval/success_greedy": 0.4})
        console.evaluation(12, EVALUATION)
        console.note("textcraft [restarted]")

    frame = last_frame(live_run(use))
    for text in ("tiny [test]", "43.8%", "12/10", "+10.0", "GoTo 90.0%", "! textcraft [restarted]"):
        assert text in frame
    assert re.search(r"^ +12 ", frame, re.M) and not re.search(r"^ +2 ", frame, re.M)


def test_the_running_phase_is_redrawn_without_further_calls():
    stream = io.StringIO()
    with RunConsole("grpo", FACTS, 10, stream=stream, live=True, width=100) as console:
        console.phase("rollout, horizon 15", 57, 128, "1,204 tok/s")
        until(lambda: "57/128" in stream.getvalue())
    for text in ("rollout, horizon 15", "57/128", "1,204 tok/s"):
        assert text in stream.getvalue()


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_no_frame_is_wider_than_the_terminal(width):
    def use(console):
        console.step(1, {column.names[0]: 1234.5 for column in _STEP_COLUMNS})
        console.evaluation(1, {column.names[0]: 0.5 for column in _EVAL_COLUMNS})
        console.phase("update", 1, 4, "y" * 300)

    for line in live_run(use, width).splitlines():
        assert len(line) <= width


def test_a_narrow_terminal_shows_fewer_columns_without_cutting_numbers():
    metrics = {name: 0.5 for column in _STEP_COLUMNS for name in column.names}
    frame = last_frame(live_run(lambda c: c.step(1, metrics), width=40))
    heading, row = re.search(r"( step  .*)\n(.*)", frame).groups()
    assert heading.split() == ["step", "success", "loss", "accuracy"]
    assert row.split() == ["1", "50.0%", "0.5000", "50.0%"]


def test_a_metric_that_is_not_finite_does_not_end_the_run():
    text = plain_run(lambda c: c.step(1, {"rollout/success": float("nan")}))
    assert "success not finite" in text


def test_all_columns_are_metrics_of_the_metric_table():
    for column in (*_STEP_COLUMNS, *_EVAL_COLUMNS):
        for name in column.names:
            lookup(name)


def test_callbacks_from_many_threads_are_cheap_and_safe():
    def use(console):
        def work():
            for i in range(2000):
                console.phase("rollout", i, 2000)

        threads = [threading.Thread(target=work) for _ in range(4)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # 8000 calls take 3 to 10 us each; if every call drew the table, the calls would take
        # minutes.
        assert time.monotonic() - began < 120.0

    live_run(use)


@pytest.fixture
def clock(monkeypatch):
    """Replaces the console's clock; returns an object whose `now` is the time in seconds."""
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("agentgym_jax.telemetry.console.time", clock)
    return clock


def test_the_eta_of_a_resumed_run_counts_only_its_own_steps(clock):
    stream = io.StringIO()
    with RunConsole("grpo", {}, 1000, first_step=900, stream=stream) as console:
        clock.now = 0.2
        console.step(901, {})
    # 99 steps of 0.2 s remain; a rate since step 0 would predict far less than 1 s
    assert re.search(r"eta (19|20)s", stream.getvalue())


def test_the_eta_excludes_the_time_before_the_first_step(clock):
    stream = io.StringIO()
    with RunConsole("grpo", {}, 100, stream=stream) as console:
        clock.now = 50.0
        console.step(0, {"eval/success": 0.1})
        assert "step 0/100    eta unknown" in stream.getvalue()
        clock.now = 100.0
        console.step(1, {"time/iteration_s": 0.1})
    assert re.search(r"step 1/100 .*eta (9|10)s", stream.getvalue())


LOG_PROGRAM = """
import sys, time
from absl import app, logging
from agentgym_jax.telemetry.console import RunConsole

def main(_):
    logging.set_verbosity(logging.INFO)
    with RunConsole("grpo", {"model": "tiny"}, 4, width=80) as console:
        for step in range(1, 4):
            logging.info("message %d", step)
            sys.stderr.write("from stderr\\n")
            console.step(step, {"rollout/success": 0.5})
            time.sleep(0.1)
    logging.info("after the end")
    assert logging.get_absl_handler().python_handler.stream is sys.stderr is sys.__stderr__

app.run(main)
"""


def run_on_terminal(program):
    """Returns all output of a program that runs on a pseudo terminal."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=slave, stderr=slave, stdin=slave, env=environment
    )
    os.close(slave)
    chunks = []
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux raises EIO once the last writer has closed the terminal
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(master)
    assert process.wait(PATIENCE_S) == 0, b"".join(chunks).decode()
    return b"".join(chunks).decode()


def screen_of(text, height=200):
    """Returns the screen that a terminal shows after `text`; supports VT100's cursor up, erase and CR."""
    rows, row, column = [""] * height, 0, 0
    for token in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", text):
        if token == "\n":
            row += 1
        elif token == "\r":
            column = 0
        elif token.startswith("\x1b["):
            count, kind = token[2:-1], token[-1]
            if kind == "A":
                row -= int(count or 1)
            elif kind == "K":
                rows[row] = "" if count == "2" else rows[row][:column]
        else:
            rows[row] = rows[row][:column].ljust(column) + token + rows[row][column + len(token) :]
            column += len(token)
    return [line.rstrip() for line in rows]


def test_log_lines_are_printed_above_the_live_table():
    screen = screen_of(run_on_terminal(LOG_PROGRAM))
    assert sum("message" in line for line in screen) == 3
    assert sum("from stderr" in line for line in screen) == 3
    headers = [i for i, line in enumerate(screen) if "╭─ grpo" in line]
    assert len(headers) == 1, "\n".join(screen)
    messages = [i for i, line in enumerate(screen) if "message" in line or "from stderr" in line]
    assert max(messages) < headers[0]
    after = [i for i, line in enumerate(screen) if "after the end" in line]
    assert len(after) == 1 and after[0] > headers[0]


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0s"), (59.9, "59s"), (200, "3m20s"), (18_420, "5h07m"), (183_600, "2d03h"), (-1, "0s")],
)
def test_durations_are_formatted_readably(seconds, text):
    assert format_duration(seconds) == text
