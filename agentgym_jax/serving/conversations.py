"""Conversations over an engine: a request that extends a known conversation keeps its tokens.

A request whose messages begin with a known conversation and its sampled answer continues that
sequence: sampled tokens are never encoded again. A request with any other history starts a new
sequence.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.limits import annotations, misfit
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.serving.engine import Answer, Engine, TokenSequence
from agentgym_jax.serving.requests import (
    Generation,
    OnTokens,
    Pending,
    RequestError,
    Sampling,
)
from agentgym_jax.serving.tool_calls import parse_tool_calls, read_json
from agentgym_jax.text.tool_chat import ToolChat

Message = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _Known:
    """Conversation that ends with a sampled answer; its sequence has no open request."""

    sequence: TokenSequence
    messages: tuple[Message, ...]


class Conversations:
    """Implements `requests.Chat` for one set of conversations. Thread-safe.

    Attributes:
      sequences: Sequences with an answer in the order of their first request, with the messages of
        each.
      num_forks: Number of chat requests with answers in their history that continue no sequence.
      last: The last answer; None before the first.
    """

    def __init__(
        self,
        engine: Engine,
        encoder: ToolChat,
        defaults: SamplingOptions,
        make_key: Callable[[int | None, int], np.ndarray],
        *,
        max_known: int | None,
        max_total_tokens: int | None = None,
        on_request: Callable[[], None] = lambda: None,
    ):
        """Creates an empty set.

        Args:
          engine: Engine that samples.
          encoder: Encoder of the messages.
          defaults: Sampling options of requests that give none; `max_tokens` limits a sequence.
          make_key: Function from the seed of a request and the number of the new sequence to the
            random key of the sequence.
          max_known: Maximum number of conversations that can be continued; the oldest is dropped.
            None keeps all.
          max_total_tokens: Maximum number of tokens of all sequences together; None for no limit.
          on_request: Function called before a request; its RequestError refuses the request.
        """
        self._engine = engine
        self._encoder = encoder
        self._defaults = defaults
        self._make_key = make_key
        self._max_known = max_known
        self._max_total_tokens = max_total_tokens
        self._on_request = on_request
        # Maximum length of each sequence with an open request.
        self._reserved: dict[TokenSequence, int] = {}
        self._lock = threading.Lock()
        # By digest of tools and messages. The oldest is first.
        self._known: dict[bytes, _Known] = {}
        self._count = 0
        self.sequences: dict[TokenSequence, tuple[Message, ...]] = {}
        self.num_forks = 0
        self.last: Answer | None = None

    def submit_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        on_tokens: OnTokens | None = None,
    ) -> Pending:
        """Implements `Chat.submit_chat`."""
        if not messages:
            raise RequestError("messages is empty; give at least one", param="messages")
        options = self._options(sampling)
        messages = [_for_template(message) for message in messages]
        with self._lock:
            self._on_request()
            digests = _digests(messages, tools)
            digest = next((d for d in reversed(digests[:-1]) if d in self._known), None)
            try:
                known, sequence, chunks = self._prepare(messages, tools, sampling, digest)
            except ValueError as error:
                raise RequestError(str(error), param="messages") from error
            pending = self._submit(sequence, chunks, options, sampling, on_tokens)
            if known is not None and digest is not None:
                del self._known[digest]
            elif any(message["role"] == "assistant" for message in messages):
                self.num_forks += 1

        def finish(future: Any) -> None:
            answer = None if future.exception() else _answer(future.result())
            after = None if answer is None else _extend(digests[-1], answer)
            self._finish(sequence, messages, answer, after, restored=(digest, known))

        return _after(pending, finish)

    def submit_tokens(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Pending:
        """Implements `Chat.submit_tokens`; a prompt that extends a sequence continues it."""
        if not len(prompt_ids):
            raise RequestError("the prompt is empty; give at least one token", param="prompt")
        prompt, options = [int(token) for token in prompt_ids], self._options(sampling)
        size = self._engine.vocab_size
        if unknown := next((token for token in prompt if not 0 <= token < size), None):
            raise RequestError(
                f"the prompt has the token id {unknown}; the ids of this model are below {size}",
                param="prompt",
            )
        with self._lock:
            self._on_request()
            extended = [
                digest
                for digest, known in self._known.items()
                if len(known.sequence) < len(prompt)
                and known.sequence.tokens == prompt[: len(known.sequence)]
            ]
            digest = max(extended, key=lambda d: len(self._known[d].sequence), default=None)
            known = None if digest is None else self._known[digest]
            sequence = self._new_sequence(sampling) if known is None else known.sequence
            added = prompt[len(sequence) :]
            pending = self._submit(sequence, [added], options, sampling, on_tokens)
            if digest is not None:
                del self._known[digest]
        text = {"role": "user", "content": self._engine.decode_text(added)}
        messages = [*(() if known is None else known.messages), text]

        def finish(future: Any) -> None:
            answer = None if future.exception() else _answer(future.result())
            after = str(sequence.tokens).encode()  # cannot be the digest of a chat
            self._finish(sequence, messages, answer, after, restored=(digest, known))

        return _after(pending, finish)

    def close(self) -> None:
        """Frees the rows of all conversations without an open request."""
        with self._lock:
            for known in self._known.values():
                self._engine.forget(known.sequence)
            self._known.clear()

    def _prepare(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        digest: bytes | None,
    ) -> tuple[_Known | None, TokenSequence, list[list[int]]]:
        """Returns the continued conversation, if any, the sequence, and the tokens to add to it."""
        if digest is not None:
            known = self._known[digest]
            is_stopped = known.sequence.answers[-1].is_stopped
            num_known = len(known.messages)
            added = self._encoder.continuation(messages, tools, num_known, is_stopped)
            if added is not None:
                return known, known.sequence, [added]
        return None, self._new_sequence(sampling), self._encoder.opening(messages, tools)

    def _new_sequence(self, sampling: Sampling) -> TokenSequence:
        return TokenSequence(self._make_key(sampling.seed, self._count), self._count)

    def _submit(
        self,
        sequence: TokenSequence,
        chunks: Sequence[Sequence[int]],
        options: SamplingOptions,
        sampling: Sampling,
        on_tokens: OnTokens | None,
    ) -> Pending:
        """Submits to the engine within the limit on the tokens of all sequences."""
        if self._max_total_tokens is not None:
            lengths = {other: len(other) for other in self.sequences} | self._reserved
            lengths.pop(sequence, None)
            left = self._max_total_tokens - sum(lengths.values())
            options = dataclasses.replace(options, max_tokens=min(options.max_tokens, left))
        before = sequence.key
        if sampling.seed is not None:  # holds for continued sequences too
            sequence.key = self._make_key(sampling.seed, sequence.number)
        try:
            pending = self._engine.submit(
                sequence, chunks, options, sampling.stop, on_tokens, sampling.stop_ids
            )
        except Exception:
            sequence.key = before
            raise
        total = len(sequence) + sum(map(len, chunks)) + options.max_turn_tokens
        self._reserved[sequence] = min(options.max_tokens, total)
        self._count = max(self._count, sequence.number + 1)
        return pending

    def _options(self, sampling: Sampling) -> SamplingOptions:
        """Returns the options of a request; raises RequestError for values out of range."""
        given: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "max_turn_tokens": sampling.max_tokens,
        }
        given = {name: value for name, value in given.items() if value is not None}
        for name, annotation in annotations(SamplingOptions).items():
            if name in given and (valid := misfit(given[name], annotation)):
                field = "max_tokens" if name == "max_turn_tokens" else name
                raise RequestError(f"{field}={given[name]!r}: expected {valid}", param=field)
        return dataclasses.replace(self._defaults, **given)

    def _finish(
        self,
        sequence: TokenSequence,
        messages: Sequence[Message],
        answer: Message | None,
        after: bytes | None,
        restored: tuple[bytes | None, _Known | None],
    ) -> None:
        """Stores an answered conversation, or restores the one before a failed request."""
        digest, known = restored
        with self._lock:
            self._reserved.pop(sequence, None)
            if answer is None or after is None:
                if not len(sequence) and self._count == sequence.number + 1:
                    self._count -= 1  # a repeated request gets the same number and random key
                if digest is not None and known is not None:
                    self._known[digest] = known
                return
            self.last = sequence.answers[-1]
            self.sequences[sequence] = (*messages, answer)
            dropped = self._known.pop(after, None)  # two requests may have had the same answer
            self._known[after] = _Known(sequence, self.sequences[sequence])
            if self._max_known is not None and len(self._known) > self._max_known:
                dropped = self._known.pop(next(iter(self._known)))
            if dropped is not None:
                self._engine.forget(dropped.sequence)
                if self._max_known is not None:
                    del self.sequences[dropped.sequence]


def _after(pending: Pending, finish: Callable[[Any], None]) -> Pending:
    """Returns a request whose result is set after `finish` was called.

    The next request of the client may arrive as soon as it has the result.
    """
    result: concurrent.futures.Future[Generation] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()

    def pass_on(future: "concurrent.futures.Future[Generation]") -> None:
        try:
            finish(future)
            found = future.result()
        except (Exception, concurrent.futures.CancelledError) as error:  # noqa: BLE001
            result.set_exception(error)
        else:
            result.set_result(found)

    pending.result.add_done_callback(pass_on)
    return Pending(result, pending.cancel)


def _answer(result: Generation) -> Message:
    return {"role": "assistant", "content": result.text}


def _for_template(message: Message) -> Message:
    """Returns a message whose tool arguments are objects, as chat templates expect."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": _object(call)}}
        for call in message["tool_calls"]
    ]
    return {**message, "content": message.get("content") or "", "tool_calls": calls}


def _object(call: Mapping[str, Any]) -> Any:
    arguments = call["function"]["arguments"]
    try:
        return read_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _digests(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Returns the digest of the tools and the messages up to each message."""
    digest = hashlib.sha256(json.dumps(list(tools), sort_keys=True).encode()).digest()
    found = []
    for message in messages:
        digest = _extend(digest, message)
        found.append(digest)
    return found


def _extend(digest: bytes, message: Message) -> bytes:
    return hashlib.sha256(digest + json.dumps(_canonical(message)).encode()).digest()


def _canonical(message: Message) -> list[Any]:
    """Returns a form that is equal for a sampled answer and for the answer as clients return it."""
    content = message.get("content") or ""
    if message["role"] != "assistant":
        return [message["role"], content, message.get("tool_call_id")]
    if "tool_calls" in message and message["tool_calls"]:
        calls = [call["function"] for call in message["tool_calls"]]
    else:
        content, calls = parse_tool_calls(content)
    return [
        "assistant",
        content.strip(),
        # Some clients format the JSON of the arguments differently.
        [[call["name"], json.dumps(_object({"function": call}), sort_keys=True)] for call in calls],
    ]
