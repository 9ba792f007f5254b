"""Runs a logger in a separate thread, so that its delays and errors do not affect training."""

import contextlib
import math
import pathlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from agentgym_jax.runs import redact
from agentgym_jax.runs.atomic_files import write_atomic
from agentgym_jax.telemetry.metrics_file import read_metrics

_Line = tuple[int, Mapping[str, float]]  # step and its metrics

_CAPACITY = 1000  # maximum number of queued steps; further steps are read from metrics.jsonl later


class Channel:
    """Queue and thread of one logger; every step of a run is sent once and in order.

    Steps that the logger missed, such as those of a killed run, are read from the file `metrics`.
    The file `sent` has the number of the last step sent. The thread calls `make` at the first step.
    """

    def __init__(
        self, name: str, make: Callable[[], Any], sent: pathlib.Path, metrics: pathlib.Path
    ):
        self._name, self._make, self._sent, self._metrics = name, make, sent, metrics
        self._queue: queue.Queue[_Line | None] = queue.Queue(_CAPACITY)
        self._is_closing = threading.Event()
        self._last = int(sent.read_text()) if sent.exists() else -1
        self._thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queues a step whose line is already in metrics.jsonl; returns immediately."""
        with contextlib.suppress(queue.Full):  # `_send_missing` will read this step from the file
            self._queue.put_nowait((step, dict(values)))

    def close(self, timeout_s: float) -> None:
        """Waits until the logger has finished, at most `timeout_s` seconds."""
        self._is_closing.set()
        with contextlib.suppress(queue.Full):  # the thread also reads `_is_closing`
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logging.warning(
                f"logger {self._name} is not done after {timeout_s:g} s and is left behind at step "
                f"{self._last}; the steps after it are sent when the run resumes"
            )

    def _work(self) -> None:
        logger = None
        try:
            for step, values in self._lines():
                if logger is None:
                    logger = self._make()
                if step > self._last + 1:
                    self._send_missing(logger, step)
                self._send(logger, step, values)
            if logger is not None:
                logger.close()
        except Exception as error:  # noqa: BLE001 - other people's code and other people's servers
            logging.warning(
                f"logger {self._name} failed and is off from step {self._last + 1} on (metrics.jsonl "
                f"has everything): {type(error).__name__}: {redact.text(str(error))}"
            )

    def _lines(self) -> Iterator[_Line]:
        """Yields the lines to send, until the channel is closed and its queue is empty."""
        while not (self._is_closing.is_set() and self._queue.empty()):
            line = self._queue.get()
            if line is None:
                return
            if line[0] > self._last:
                yield line

    def _send_missing(self, logger: Any, before: int) -> None:
        for line in read_metrics(self._metrics):
            if self._last < line["step"] < before:
                values = {k: v for k, v in line.items() if k not in ("step", "time")}
                self._send(logger, line["step"], values)

    def _send(self, logger: Any, step: int, values: Mapping[str, float]) -> None:
        logger.log(step, {k: v for k, v in values.items() if math.isfinite(v)})
        self._last = step
        write_atomic(self._sent, f"{step}\n")
