"""A logger in a thread of its own: whatever it does, the run neither waits nor ends."""

import math
import pathlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping

from absl import logging

from agentgym_jax import redact
from agentgym_jax.loggers.about import Logger
from agentgym_jax.metrics_file import read_metrics
from agentgym_jax.run_folder import write_atomic

Line = tuple[int, Mapping[str, float]]

_CAPACITY = 1000  # steps that may wait; those beyond are read from metrics.jsonl later


class Channel:
    """Sends every step once and in order, over all starts of a run.

    The last step sent is kept in a file beside the logger's own. Steps at or before it are not sent
    again; steps that are missing before a new one (the logger was added later, was too slow, or its
    run was killed) come from metrics.jsonl.

    Args:
      name: of the logger, for messages.
      make: makes it; called in the thread, with the first step.
      sent: file with the last step sent.
      metrics: path of metrics.jsonl.
    """

    def __init__(
        self, name: str, make: Callable[[], Logger], sent: pathlib.Path, metrics: pathlib.Path
    ):
        self._name, self._make, self._sent, self._metrics = name, make, sent, metrics
        self._queue: queue.Queue[Line | None] = queue.Queue(_CAPACITY)
        self._is_closing = threading.Event()
        self._last = int(sent.read_text()) if sent.exists() else -1
        self._thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Returns at once. The line of the step is in metrics.jsonl already."""
        try:
            self._queue.put_nowait((step, dict(values)))
        except queue.Full:
            pass  # the next one that finds a place brings it along, from the file

    def close(self, timeout_s: float) -> None:
        """Waits for what is under way, but not longer than that."""
        self._is_closing.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            pass  # the thread looks at `_is_closing` as well
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logging.warning(
                "logger %s is not done after %g s and is left behind at step %d; the steps after it "
                "are sent when the run resumes",
                self._name,
                timeout_s,
                self._last,
            )

    def _work(self) -> None:
        logger: Logger | None = None
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
                "logger %s failed and is off from step %d on (metrics.jsonl has everything): %s: %s",
                self._name,
                self._last + 1,
                type(error).__name__,
                redact.text(str(error)),
            )

    def _lines(self) -> Iterator[Line]:
        """What is to be sent, until the channel is closed and empty."""
        while True:
            if self._is_closing.is_set() and self._queue.empty():
                return
            line = self._queue.get()
            if line is None:
                return
            if line[0] > self._last:
                yield line

    def _send_missing(self, logger: Logger, before: int) -> None:
        for line in read_metrics(self._metrics):
            if self._last < line["step"] < before:
                step = line["step"]
                self._send(logger, step, {k: v for k, v in line.items() if k not in _OF_THE_LINE})

    def _send(self, logger: Logger, step: int, values: Mapping[str, float]) -> None:
        logger.log(step, {k: v for k, v in values.items() if math.isfinite(v)})
        self._last = step
        write_atomic(self._sent, f"{step}\n")


_OF_THE_LINE = ("step", "time")
