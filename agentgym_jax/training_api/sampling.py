"""Samples of several saved weights with one sampler, which holds one of them at a time.

Requests are served in the order of arrival. Requests with the same weights run together; before a
request with other weights, the sampler finishes the ones before it and changes its weights.
"""

import collections
import concurrent.futures
import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from agentgym_jax.sampling.options import SamplingOptions, random_key
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.requests import (
    Generation,
    NotServingError,
    OverloadedError,
    Pending,
    RequestError,
    Sampling,
    check_ids,
)
from agentgym_jax.serving.sequences import TokenSequence
from agentgym_jax.training_api import tinker_wire
from agentgym_jax.training_api.futures import Future, Result, complete, complete_if_failed

MAX_WAITING = 4096  # asample calls that wait or run
MAX_STOP = 16
CANCELLED = "cancelled"  # code of the error of a cancelled call
_ENGINE_WAITING = MAX_WAITING * tinker_wire.MAX_SAMPLES  # the bound on calls is reached first
_STOPPED = "the server stops"
# Loads weights, in the form of `Sampler.set_params`.
Load = Callable[[], Any]


class _Call:
    """One asample call: its name, weights and request, and the future of its result."""

    def __init__(
        self, name: str, key: Hashable, load: Load, body: tinker_wire.SampleRequest, future: Any
    ):
        self.name, self.key, self.load, self.body, self.future = name, key, load, body, future
        self.pending: list[Pending] = []  # its answers in the engine
        self.is_cancelled = False

    def cancel(self) -> None:
        """Ends the answers; the call fails once the engine has given them up."""
        self.is_cancelled = True
        for answer in self.pending:
            answer.cancel()

    def check(self) -> None:
        """Raises RequestError if the call was cancelled."""
        if self.is_cancelled:
            raise RequestError(
                f"{self.name} was cancelled, or its client gave no sign of life; sample again",
                CANCELLED,
            )


class SharedSampler:
    """Thread that samples for asample calls; a context manager."""

    def __init__(self, sampler: Sampler, decode_text: Callable[[Sequence[int]], str]):
        """Creates a stopped thread; the sampler may have no weights yet."""
        self.context = sampler.cache_length
        self._vocab_size = sampler.policy.config.vocab_size
        self._sampler = sampler
        self._engine = Engine(sampler, decode_text, max_waiting=_ENGINE_WAITING)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._open: collections.deque[_Call] = collections.deque()
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._num_running = 0  # calls in the engine
        self._running = contextlib.ExitStack()
        self._key: Hashable = None  # weights in the sampler
        self._version = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def check(self) -> None:
        """Raises the error that ended the sampler, if any."""
        self._engine.check()

    def submit(
        self,
        name: str,
        key: Hashable,
        load: Load,
        body: tinker_wire.SampleRequest,
        future: "Future[Result]",
    ) -> None:
        """Samples for a call, whose future gets the protobuf result.

        Raises:
          RequestError: The prompt or the options do not fit.
          OverloadedError: Too many calls wait already.
        """
        self._check(body)
        call = _Call(name, key, load, body, future)
        with self._lock:
            while self._open and self._open[0].future.done():
                self._open.popleft()
            if len(self._open) >= MAX_WAITING:
                raise OverloadedError(f"{MAX_WAITING} calls wait already; try again later")
            self._open.append(call)
        self._calls.put(call)

    def cancel(self, is_meant: Callable[[str], bool]) -> None:
        """Cancels calls by their names; those without a result fail with the code `CANCELLED`."""
        with self._lock:
            for call in self._open:
                if not call.is_cancelled and not call.future.done() and is_meant(call.name):
                    call.cancel()

    def __enter__(self) -> "SharedSampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all calls; open ones fail with NotServingError."""
        with self._lock:
            self._is_stopping = True
            self._ended.notify_all()
        self._calls.put(None)
        self._thread.join()

    def _check(self, body: tinker_wire.SampleRequest) -> None:
        tokens, params = body.tokens, body.sampling_params
        if not tokens:
            raise RequestError("the prompt is empty; give at least one token", param="prompt")
        if len(tokens) >= self.context:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens and must leave room for an answer within "
                f"{self.context}; shorten it, or start the server with a larger --context",
                "context_length_exceeded",
                "prompt",
            )
        if max(tokens) >= self._vocab_size:
            raise RequestError(
                f"the prompt has the id {max(tokens)}, but the model has {self._vocab_size}; use the "
                "tokenizer of the served model",
                param="prompt",
            )
        if params.stop == [] or "" in _stops(params):
            raise RequestError(
                "stop must not be empty: the stop tokens of the model always end an answer; leave "
                "it out or name stops",
                param="stop",
            )
        if len(_stops(params)) > MAX_STOP:
            raise RequestError(f"stop has more than {MAX_STOP} entries; give fewer", param="stop")
        check_ids((s for s in _stops(params) if isinstance(s, int)), self._vocab_size, "stop")
        last = body.prompt_logprobs_last_n
        if last is not None and (not body.prompt_logprobs or last >= len(tokens)):
            raise RequestError(
                "prompt_logprobs_last_n needs prompt_logprobs and fewer tokens than the prompt has",
                param="prompt_logprobs_last_n",
            )

    # The methods below run in the thread.

    def _run(self) -> None:
        with contextlib.suppress(Exception), self._running:  # `check` raises the engine's error
            while (call := self._calls.get()) is not None:
                complete_if_failed(call.future, functools.partial(self._serve, call))
        for waiting in _drain(self._calls):
            waiting.future.set_exception(NotServingError(_STOPPED))

    def _serve(self, call: _Call) -> None:
        if self._is_stopping:
            raise NotServingError(_STOPPED)
        call.check()
        if call.key != self._key or not self._version:
            with self._lock:
                self._ended.wait_for(lambda: not self._num_running or self._is_stopping)
            if self._is_stopping:
                raise NotServingError(_STOPPED)
            call.check()
            params = call.load()
            self._running.close()  # the engine ends, because caches belong to the old weights
            self._sampler.set_params(params, self._version + 1)
            self._version, self._key = self._version + 1, call.key
            self._running.enter_context(self._engine.running())
        self._start(call)

    def _start(self, call: _Call) -> None:
        """Passes a call to the engine, which completes it."""
        tokens, params = call.body.tokens, call.body.sampling_params
        options = SamplingOptions(
            temperature=params.temperature,
            max_turn_tokens=min(params.max_tokens or self.context, self.context),
            max_tokens=self.context,
            top_k=max(0, params.top_k),
            top_p=params.top_p,
        )
        stops = _stops(params)
        sampling = Sampling(
            stop=[stop for stop in stops if isinstance(stop, str)],
            stop_ids=[stop for stop in stops if isinstance(stop, int)],
        )
        score = self._engine.score(tokens) if call.body.prompt_logprobs else None
        sequences = []
        for number in range(call.body.num_samples):
            key = random_key(None if params.seed is None else f"{params.seed}/{number}")
            sequences.append(TokenSequence(key))
            call.pending.append(self._engine.submit(sequences[-1], [tokens], options, sampling))
        results = [answer.result for answer in call.pending]
        futures: list[concurrent.futures.Future[Any]] = [
            *results,
            *([] if score is None else [score]),
        ]
        left = len(futures)

        def on_done(_: Any) -> None:  # in the thread of the engine, or in this one
            nonlocal left
            with self._lock:
                left -= 1
                if left:
                    return
                self._num_running -= 1
                self._ended.notify_all()
            for sequence in sequences:
                self._engine.forget(sequence)
            complete(call.future, lambda: _answer(call, score))

        with self._lock:
            self._num_running += 1
            if call.is_cancelled:  # while its answers were submitted
                call.cancel()
        for future in futures:
            future.add_done_callback(on_done)


def _answer(call: _Call, score: Any) -> bytes:
    call.check()
    body = call.body
    done: list[Generation] = [answer.result.result() for answer in call.pending]
    prompt = None
    if score is not None:
        prompt = np.concatenate([np.full(1, np.nan, np.float32), score.result().logprobs])
        if body.prompt_logprobs_last_n is not None:
            prompt[: -body.prompt_logprobs_last_n] = np.nan
    answers = [(r.token_ids, r.logprobs, r.finish_reason == "stop") for r in done]
    return tinker_wire.sample_response(answers, prompt)


def _stops(params: tinker_wire.SamplingParams) -> list[Any]:
    if params.stop is None:
        return []
    return [params.stop] if isinstance(params.stop, str) else list(params.stop)


def _drain(calls: "queue.SimpleQueue[_Call | None]") -> Iterator[_Call]:
    with contextlib.suppress(queue.Empty):
        while True:
            call = calls.get_nowait()
            if call is not None:
                yield call
