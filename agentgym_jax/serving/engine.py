"""Thread that samples for many concurrent requests in the rows of one sampler.

A `TokenSequence` keeps its cache row between its requests, so a continued conversation prefills only
its new tokens. If all rows are taken, the row that has been idle longest is given up; its sequence
is prefilled again when it continues.
"""

import bisect
import collections
import concurrent.futures
import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from absl import logging

from agentgym_jax.episodes.trajectory import TokenSource
from agentgym_jax.sampling.adjusting import TurnAdjuster
from agentgym_jax.sampling.options import SampledTurn, SamplingOptions
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.requests import (
    Generation,
    NotServingError,
    OnTokens,
    OverloadedError,
    Pending,
    RequestError,
    Sampling,
)
from agentgym_jax.serving.sequences import Answer, Changes, TokenSequence
from agentgym_jax.serving.text_scores import TokenScores, score_tokens
from agentgym_jax.text.grammars import Grammars
from agentgym_jax.text.growing import GrowingText

_WAIT_S = 0.001  # interval at which new requests are taken during a decode call, in seconds
_LUMP_S = 0.1  # time of the calls whose tokens a stream passes on together, in seconds
_PLAIN = Sampling()  # a request without stops, for any weights
_STOPPED = "the policy is not sampling at present; try again later"


@dataclasses.dataclass(eq=False)
class _Work:
    """One request in the engine."""

    sequence: TokenSequence
    chunks: Sequence[Sequence[int]]
    options: SamplingOptions
    sampling: Sampling
    on_tokens: OnTokens | None
    changes: Changes | None
    future: "concurrent.futures.Future[Generation]"
    num_reported: int = 0
    text: GrowingText | None = None  # sampled text; None before the first report

    @property
    def added(self) -> list[int]:
        """Returns the tokens that this request adds to the sequence before its answer."""
        return [token for chunk in self.chunks for token in chunk]


class Engine:
    """Samples for concurrent requests while it runs; see `running`.

    Attributes:
      num_waiting: Number of requests that wait for a cache row.
      cache_length: Maximum number of tokens of a sequence.
      grammars: Compiler of the grammars of answers; None if answers may have none.
    """

    def __init__(
        self,
        sampler: Sampler,
        decode_text: Callable[[Sequence[int]], str],
        *,
        max_waiting: int,
        grammars: Grammars | None = None,
    ):
        """Creates a stopped engine; at most `max_waiting` requests may wait for a row."""
        self.cache_length = sampler.cache_length
        self.vocab_size = sampler.policy.config.vocab_size
        self._sampler = sampler
        self.decode_text = decode_text
        self.grammars = grammars
        self._max_waiting = max_waiting
        self._lock = threading.Lock()  # for `_is_running` and `num_waiting`
        self._is_running = False
        self._version: int | None = None  # of the weights, if requests may wait for it
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: collections.deque[_Work] = collections.deque()
        self._active: dict[int, _Work] = {}  # by row
        # Sequences with a row and without a request; the first has been idle longest.
        self._idle: dict[int, TokenSequence] = {}
        self.num_waiting = 0
        self._error: Exception | None = None

    @property
    def num_active(self) -> int:
        """Returns the number of requests that sample."""
        return len(self._active)

    @property
    def num_sampled(self) -> int:
        """Returns the number of tokens sampled since the sampler's statistics were reset."""
        return self._sampler.statistics.sampled

    @contextlib.contextmanager
    def running(self, version: int | None = None) -> Iterator[None]:
        """Runs the engine's thread; at the end, open requests fail with NotServingError.

        `version` is that of the sampler's weights. Requests with a version wait for a run whose
        version is at least that, also while the engine is stopped.

        Raises:
          Exception: The error of the sampler that ended the thread.
        """
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping,), name="engine", daemon=True)
        with self._lock:
            self._is_running, self._version = True, version
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            self._inbox.put(lambda: None)
            thread.join()
        self.check()

    def check(self) -> None:
        """Raises the error that ended the engine's thread, if any."""
        if isinstance(self._error, ValueError):  # commands show a user's ValueError as one line
            raise RuntimeError("the engine has failed; this is a defect") from self._error
        if self._error is not None:
            raise self._error

    def submit(
        self,
        sequence: TokenSequence,
        chunks: Sequence[Sequence[int]],
        options: SamplingOptions,
        sampling: Sampling = _PLAIN,
        on_tokens: OnTokens | None = None,
        changes: Changes | None = None,
    ) -> Pending:
        """Appends `chunks` to a sequence without another open request, and samples an answer.

        If the request fails or is cancelled, the sequence is as before. Of `sampling`, the stops and
        the version count; the request waits for weights of at least this version (`running`).

        Raises:
          RequestError: There are no new tokens, or they leave none to sample.
          OverloadedError: `max_waiting` requests wait.
          NotServingError: The engine is stopped.
        """
        total = len(sequence) + sum(map(len, chunks))
        if not chunks or not all(map(len, chunks)):
            raise RequestError(
                "the chat template of this model writes nothing for the last message; give a message "
                "of another role",
                param="messages",
            )
        if total >= options.max_tokens:
            raise RequestError(
                f"the conversation has {total} tokens and must leave room for an answer within "
                f"{options.max_tokens}; shorten the messages",
                "context_length_exceeded",
                "messages",
            )
        future: concurrent.futures.Future[Generation] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # only the engine may complete it
        sampling = dataclasses.replace(sampling, stop_ids=frozenset(sampling.stop_ids))
        work = _Work(sequence, chunks, options, sampling, on_tokens, changes, future)
        self._enqueue(lambda: self._waiting.append(work), may_wait=sampling.version is not None)
        return Pending(future, lambda: self._inbox.put(lambda: self._cancel(work)), total)

    def score(self, tokens: Sequence[int]) -> "concurrent.futures.Future[TokenScores]":
        """Scores a sequence of at least one token; the errors are those of `submit`."""
        future: concurrent.futures.Future[TokenScores] = concurrent.futures.Future()
        self._enqueue(lambda: self._score(tokens, future))
        return future

    def _enqueue(self, message: Callable[[], None], *, may_wait: bool = False) -> None:
        """Counts a waiting request and passes a message to the thread, or to that of the next run."""
        with self._lock:
            if self._error is not None or not (self._is_running or may_wait):
                raise NotServingError(_STOPPED)
            if self.num_waiting >= self._max_waiting and not may_wait:
                raise OverloadedError(f"{self.num_waiting} requests wait already; try again later")
            self.num_waiting += 1
            self._inbox.put(message)

    def forget(self, sequence: TokenSequence) -> None:
        """Frees the row of a sequence without an open request."""
        self._inbox.put(lambda: self._close_idle(sequence))

    # The methods below run in the engine's thread.

    def _run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                has_work = self._active or any(map(self._is_due, self._waiting))
                self._take_messages(0.0 if has_work else None)
                self._admit()
                self._sampler.begin(self._call_limit())
                while self._sampler.is_running:
                    self._take_messages(_WAIT_S)
                    self._admit()
                for turn in self._sampler.finish():
                    self._finish(self._active[turn.row], turn)
                self._report()
        except Exception as error:  # noqa: BLE001 - `check` raises it; open requests fail first
            self._error = error
        finally:
            self._end()

    def _is_due(self, work: _Work) -> bool:
        """Returns True if a request may use the present weights."""
        needed = work.sampling.version
        return needed is None or (self._version is not None and needed <= self._version)

    def _call_limit(self) -> int | None:
        """Returns the maximum number of decode steps of the next call; None for no limit.

        While a client reads a stream, a call takes about `_LUMP_S`, on slow devices that of one
        step. The tokens do not depend on the limit.
        """
        if (
            all(work.on_tokens is None for work in self._active.values())
            or not self._sampler.step_s
        ):
            return None
        return max(1, round(min(_LUMP_S / self._sampler.step_s, self.cache_length)))

    def _end(self) -> None:
        """Fails all requests, except those that wait for newer weights, and closes all rows."""
        with self._lock:
            self._is_running = False
        self._take_messages(0.0)
        with contextlib.suppress(Exception):  # after an error of the sampler it has no result
            self._sampler.finish()
        kept = [w for w in self._waiting if w.sampling.version is not None and self._error is None]
        with self._lock:
            self.num_waiting -= len(self._waiting) - len(kept)
        for work in [*self._waiting, *self._active.values()]:
            if work not in kept:
                work.future.set_exception(NotServingError(_STOPPED))
            self._close_row(work.sequence)
        for sequence in list(self._idle.values()):
            self._close_row(sequence)
        self._waiting = collections.deque(kept)
        self._active.clear()
        self._idle.clear()

    def _take_messages(self, timeout_s: float | None) -> None:
        """Handles all messages; waits for the first one, at most `timeout_s` (None: for ever)."""
        with contextlib.suppress(queue.Empty):
            self._inbox.get(block=timeout_s != 0.0, timeout=timeout_s)()
            while True:
                self._inbox.get_nowait()()

    def _admit(self) -> None:
        """Gives rows to waiting requests, in the order of arrival.

        A pass takes time in proportion to the requests that wait, of which a batch may have thousands.
        """
        sampler = self._sampler
        if not sampler.free_rows and not self._idle:
            return
        due = list(filter(self._is_due, self._waiting))
        needed = {work.sequence.row for work in due}
        spare = collections.deque(s for row, s in self._idle.items() if row not in needed)
        for work in due:
            sequence, chunks = work.sequence, work.chunks
            if sequence.row is None:
                if not sampler.free_rows:
                    if not spare:
                        continue
                    self._close_idle(spare.popleft())
                sequence.row = sampler.open(sequence.key, work.options)
                if len(sequence):
                    chunks = [[*sequence.tokens, *work.added]]
            else:
                del self._idle[sequence.row]
            sampler.set_options(sequence.row, sequence.key, work.options, self._adjuster(work))
            self._waiting.remove(work)
            with self._lock:
                self.num_waiting -= 1
            self._active[sequence.row] = work  # first: if prefill fails, `_end` completes it
            sampler.prefill(sequence.row, chunks)

    def _score(
        self, tokens: Sequence[int], future: "concurrent.futures.Future[TokenScores]"
    ) -> None:
        """Completes a request of `score`, between two calls of the sampler."""
        with self._lock:
            self.num_waiting -= 1
            is_running = self._is_running
        if not is_running:
            future.set_exception(NotServingError(_STOPPED))
        elif future.set_running_or_notify_cancel():
            try:
                params = self._sampler.params
                assert params is not None, "an engine that runs has weights"
                future.set_result(score_tokens(self._sampler.policy, params, tokens))
            except Exception as error:  # noqa: BLE001 - such as too little memory for a long text
                future.set_exception(error)  # the requests of others go on

    def _adjuster(self, work: _Work) -> TurnAdjuster | None:
        if work.changes is None:
            return None
        before = [*work.sequence.tokens, *work.added]
        changes = work.changes
        return TurnAdjuster(changes.options, before, self.vocab_size, changes.matcher)

    def _report(self) -> None:
        """Passes new tokens to callbacks and ends answers that contain a stop string."""
        for row, work in list(self._active.items()):
            if work.on_tokens is None and not work.sampling.stop and not work.sampling.stop_ids:
                continue
            tokens, logprobs = self._sampler.partial_turn(row)
            if len(tokens) == work.num_reported:
                continue
            if self._has_new_stop(work, tokens):
                turn = SampledTurn(row, tokens, logprobs, False, self._sampler.version)
                self._finish(work, turn)
            else:
                _tell(work, tokens)

    def _has_new_stop(self, work: _Work, tokens: np.ndarray) -> bool:
        """Returns True if the tokens since the last report have a stop, or complete one."""
        added, work.num_reported = tokens[work.num_reported :], len(tokens)
        stops = work.sampling.stop
        if any(token in work.sampling.stop_ids for token in added.tolist()):
            return True
        if not stops:
            return False
        if work.text is None:
            work.text = GrowingText(self.decode_text)
        text, unchanged = work.text.update(tokens.tolist())
        start = max(0, unchanged - max(map(len, stops)) + 1)
        return any(text.find(stop, start) >= 0 for stop in stops)

    def _find_stop(self, work: _Work, tokens: Sequence[int]) -> tuple[int, str, str] | None:
        """Returns the number of tokens up to the first stop, the text before it, and its string."""
        stops, stop_ids = work.sampling.stop, work.sampling.stop_ids
        id_at = next((i for i, token in enumerate(tokens) if token in stop_ids), None)
        tokens = tokens[:id_at]
        text = self.decode_text(tokens) if stops else ""
        if not any(stop in text for stop in stops):
            return None if id_at is None else (id_at + 1, self.decode_text(tokens), "")

        def has_stop(count: int) -> bool:
            return any(stop in self.decode_text(tokens[:count]) for stop in stops)

        count = bisect.bisect_left(range(len(tokens) + 1), True, key=has_stop)
        text = self.decode_text(tokens[:count])
        at, stop = min((text.index(stop), stop) for stop in stops if stop in text)
        return count, text[:at], stop

    def _finish(self, work: _Work, turn: SampledTurn) -> None:
        """Appends the answer to the sequence and completes the request."""
        sequence, row = work.sequence, turn.row
        matcher = None if work.changes is None else work.changes.matcher
        if matcher is not None and matcher.error:
            message = f"the grammar cannot continue the answer: {matcher.error}; simplify it"
            self._drop(work, RequestError(message))
            return
        spoken = turn.tokens[:-1] if turn.is_stopped else turn.tokens
        found = self._find_stop(work, spoken.tolist())
        if found is not None:
            count, text, stop = found
            turn = self._sampler.cut_turn(row, count)
        else:
            text, stop = self.decode_text(spoken.tolist()), ""
        prompt = np.asarray([*sequence.tokens, *work.added], np.int32)
        source = TokenSource.OBSERVATION if len(sequence) else TokenSource.PROMPT
        sequence.extend(work.added, source)
        start = len(sequence)
        sequence.extend(
            turn.tokens.tolist(), TokenSource.ACTION, turn.logprobs.tolist(), turn.version
        )
        is_cut = not turn.is_stopped and found is None
        grammar = "" if matcher is None else matcher.grammar
        sequence.answers.append(
            Answer(start, len(sequence), text, turn.is_stopped, is_cut, grammar)
        )
        del self._active[row]
        self._idle[row] = sequence
        result = Generation(
            prompt_ids=prompt,
            token_ids=turn.tokens,
            logprobs=turn.logprobs,
            text=text,
            finish_reason="length" if is_cut else "stop",
            version=turn.version,
            stop=stop,
        )
        work.future.set_result(result)

    def _cancel(self, work: _Work) -> None:
        if work.future.done():
            return
        if work in self._waiting:
            self._waiting.remove(work)
            with self._lock:
                self.num_waiting -= 1
            work.future.set_exception(concurrent.futures.CancelledError())
        else:
            self._drop(work, concurrent.futures.CancelledError())

    def _drop(self, work: _Work, error: BaseException) -> None:
        """Ends a request that has a row, without an answer."""
        self._active = {r: w for r, w in self._active.items() if w is not work}
        self._close_row(work.sequence)
        work.future.set_exception(error)

    def _close_idle(self, sequence: TokenSequence) -> None:
        if sequence.row in self._idle:
            del self._idle[sequence.row]
            self._close_row(sequence)

    def _close_row(self, sequence: TokenSequence) -> None:
        if sequence.row is not None:
            self._sampler.close(sequence.row)
            sequence.row = None


def _tell(work: _Work, tokens: np.ndarray) -> None:
    """Calls the callback of a request; a callback that fails is not called again."""
    if work.on_tokens is None:
        return
    try:
        work.on_tokens(tokens.tolist())
    except Exception:  # noqa: BLE001 - an error of one client must not end the others' requests
        logging.exception("a callback for sampled tokens failed")
        work.on_tokens = None
