"""Conversations over an engine: a request that extends a known conversation keeps its tokens.

A request whose messages begin with a known conversation and its sampled answer continues that
conversation: sampled tokens are never encoded again. Every answer stays known, so any number of
requests may continue it. The first one extends its sequence; others begin with a copy of its
tokens. A request with any other history starts a new sequence.
"""

import concurrent.futures
import dataclasses
import hashlib
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.checks.limits import annotations, misfit
from agentgym_jax.sampling.adjusting import LogitOptions
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.constraints import make_grammar
from agentgym_jax.serving.digests import Message, describe_fork, digests, extend, for_template
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.requests import (
    Constraint,
    Generation,
    NotServingError,
    OnTokens,
    Pending,
    RequestError,
    Sampling,
    check_ids,
)
from agentgym_jax.serving.sequences import Answer, Changes, TokenSequence
from agentgym_jax.text.grammars import TokenMatcher
from agentgym_jax.text.tool_chat import ToolChat

_CANCEL_S = 60.0


@dataclasses.dataclass(frozen=True)
class _Known:
    """End of a sampled answer; the tokens before it never change."""

    sequence: TokenSequence
    length: int  # tokens of the sequence up to the end of the answer
    num_messages: int
    is_stopped: bool  # True if a stop token ended the answer
    # Digests without the outer whitespace of answers, also with the stop string that ended this one.
    loose: frozenset[bytes]


@dataclasses.dataclass(frozen=True)
class _Encoded:
    """New tokens of a request, after those of `known`."""

    digest: bytes  # of the request's messages
    found: _Known | None  # known conversation with which the messages begin
    known: _Known | None  # None if the template changes its messages, too
    chunks: list[list[int]]


class Conversations:
    """Implements `requests.Chat` for one set of conversations. Thread-safe.

    Attributes:
      sequences: Sequences with a known answer in the order of their first answer, with the messages
        of each; without messages if the number of known answers is limited.
      answers: All answers by the names of their requests, in order; empty if their number is limited.
      num_forks: Number of chat histories with answers that continue no sequence.
      first_fork: First message that differs from the known conversations in the first such history.
    """

    def __init__(
        self,
        engine: Engine,
        encoder: ToolChat,
        defaults: SamplingOptions,
        make_key: Callable[[int | None, int], np.ndarray],
        *,
        max_known: int | None,
        on_request: Callable[[], None] = lambda: None,
    ):
        """Creates an empty set.

        Args:
          engine: Engine that samples.
          encoder: Encoder of the messages.
          defaults: Sampling options of requests that give none; `max_tokens` limits a sequence.
          make_key: Function from the seed of a request and the number of the new sequence to the
            random key of the sequence.
          max_known: Maximum number of answers that can be continued; the one that was used least
            recently is dropped. It bounds the memory, because a sequence without such an answer is
            dropped, too. None keeps all.
          on_request: Function called before a request; its RequestError refuses the request.
        """
        self._engine = engine
        self._encoder = encoder
        self.form = AnswerForm.of(encoder)
        self._defaults = defaults
        self._make_key = make_key
        self._max_known = max_known
        self._on_request = on_request
        self._lock = threading.Lock()
        self._finished = threading.Condition(self._lock)  # notified at the end of a request
        # By digest of tools and messages; the one that was used least recently is first.
        self._known: dict[bytes, _Known] = {}
        self._by_loose: dict[bytes, bytes] = {}  # digests of `_known` by `_Known.loose`
        self._busy: dict[TokenSequence, Pending] = {}  # open request of each sequence
        self._is_closed = False
        self._encoded: _Encoded | None = None  # of the last request
        self._counted: _Encoded | None = None  # last one that could be a fork
        self._count = 0
        self.sequences: dict[TokenSequence, tuple[Message, ...]] = {}
        self.answers: dict[str, Answer] = {}
        self.num_forks = 0
        self.first_fork = ""

    def submit_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        on_tokens: OnTokens | None = None,
    ) -> Pending:
        """Implements `Chat.submit_chat`."""
        self._on_request()
        if not messages:
            raise RequestError("messages is empty; give at least one", param="messages")
        options, changes = self._options(sampling), self._changes(sampling)
        messages, exact, loose = self._digests(messages, tools)
        encoded = self._encode(messages, tools, exact, loose)
        if encoded is not self._counted:  # of several choices, the first one counts
            self._counted = encoded
            self._count_fork(messages, encoded)
        sequence, pending = self._submit(
            encoded.known, encoded.chunks, options, changes, sampling, on_tokens
        )

        def finish(answer: Message, stop: str) -> None:
            after = extend(exact[-1], answer, self.form, is_loose=False)
            # The tokens have the stop string, which some clients add to the text again.
            whole = {**answer, "content": answer["content"] + stop}
            ends = (extend(loose[-1], end, self.form, is_loose=True) for end in (answer, whole))
            self._store(sequence, (*messages, answer), sampling.name, after, frozenset(ends))

        return self._finishing(pending, sequence, finish)

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> int:
        """Implements `Chat.count_tokens`."""
        messages, exact, loose = self._digests(messages, tools)
        encoded = self._encode(messages, tools, exact, loose)
        before = 0 if encoded.known is None else encoded.known.length
        return before + sum(map(len, encoded.chunks))

    def submit_tokens(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Pending:
        """Implements `Chat.submit_tokens`; a prompt that extends a sequence continues it."""
        self._on_request()
        options, changes = self._options(sampling), self._changes(sampling)
        prompt = [int(token) for token in prompt_ids]
        with self._lock:
            extended = [k for k in self._known.values() if self._is_extended(k, prompt)]
            known = max(extended, key=lambda k: k.length, default=None)
            before = () if known is None else self.sequences[known.sequence][: known.num_messages]
        added = prompt[0 if known is None else known.length :]
        text = {"role": "user", "content": self._engine.decode_text(added)}
        sequence, pending = self._submit(known, [added], options, changes, sampling, on_tokens)

        def finish(answer: Message, stop: str) -> None:
            # Cannot be the digest of a chat.
            after = hashlib.sha256(b"tokens" + np.asarray(sequence.tokens, "<i4").tobytes())
            self._store(
                sequence, (*before, text, answer), sampling.name, after.digest(), frozenset()
            )

        return self._finishing(pending, sequence, finish)

    def close(self) -> None:
        """Cancels open requests, refuses others, and frees all rows.

        The engine answers after its present call at the latest; then nothing changes any more.
        """
        with self._lock:
            self._is_closed = True
            for pending in self._busy.values():
                pending.cancel()
            self._finished.wait_for(lambda: not self._busy, _CANCEL_S)
            for sequence in self.sequences:
                self._engine.forget(sequence)

    def _find(self, exact: Sequence[bytes], loose: Sequence[bytes]) -> _Known | None:
        """Returns the longest known conversation with which a request begins.

        Clients may strip the answers that they send back. Then the latest conversation counts that
        is equal except for this whitespace.
        """
        for i in reversed(range(len(exact))):
            key = exact[i] if exact[i] in self._known else self._by_loose.get(loose[i])
            if key is not None:
                self._known[key] = self._known.pop(key)
                return self._known[key]
        return None

    def _digests(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Message], list[bytes], list[bytes]]:
        """Returns messages for the template, and their exact and loose digests."""
        messages = [for_template(message, self.form) for message in messages]
        exact, loose = (
            digests(messages, tools, self.form, is_loose=is_loose) for is_loose in (False, True)
        )
        return messages, exact, loose

    def _encode(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        exact: Sequence[bytes],
        loose: Sequence[bytes],
    ) -> _Encoded:
        """Returns the new tokens of a request; raises RequestError if it cannot be rendered."""
        with self._lock:
            found = self._find(exact[:-1], loose[:-1])
        last = self._encoded
        if last is not None and last.digest == exact[-1] and last.found is found:
            return last  # another choice, or a repeated request
        added = None
        try:
            if found is not None:
                added = self._encoder.continuation(
                    messages, tools, found.num_messages, found.is_stopped
                )
            if found is not None and added is not None:
                encoded = _Encoded(exact[-1], found, found, [added])
            else:
                encoded = _Encoded(exact[-1], found, None, self._encoder.opening(messages, tools))
        except ValueError as error:
            raise RequestError(str(error), param="messages") from error
        self._encoded = encoded
        return encoded

    def _count_fork(self, messages: Sequence[Message], encoded: _Encoded) -> None:
        """Counts a history with answers that continues no sequence."""
        has_answers = any(message["role"] == "assistant" for message in messages)
        if encoded.known is not None or not self._known or not has_answers:
            return
        with self._lock:
            self.num_forks += 1
            if self.first_fork or self._max_known is not None:
                return
            self.first_fork = (
                "the chat template writes earlier messages differently when others follow"
                if encoded.found is not None
                else describe_fork(messages, self.sequences.values(), self.form)
            )

    def _is_extended(self, known: _Known, prompt: Sequence[int]) -> bool:
        tokens = known.sequence.tokens
        is_end = len(tokens) == known.length and known.sequence not in self._busy
        return is_end and len(tokens) < len(prompt) and tokens == prompt[: len(tokens)]

    def _submit(
        self,
        known: _Known | None,
        chunks: list[list[int]],
        options: SamplingOptions,
        changes: Changes | None,
        sampling: Sampling,
        on_tokens: OnTokens | None,
    ) -> tuple[TokenSequence, Pending]:
        """Submits new tokens to the engine, after those of a known conversation or a copy of them."""
        with self._lock:
            if self._is_closed:
                raise NotServingError("the conversations are closed")
            is_free = known is not None and known.sequence not in self._busy
            if known is not None and is_free and len(known.sequence) == known.length:
                sequence = known.sequence
            else:
                sequence = TokenSequence(self._make_key(sampling.seed, self._count), self._count)
                if known is not None:
                    chunks = [known.sequence.tokens[: known.length], *chunks]
            before = sequence.key
            if sampling.seed is not None:  # holds for continued sequences too
                sequence.key = self._make_key(sampling.seed, sequence.number)
            try:
                pending = self._engine.submit(
                    sequence, chunks, options, sampling, on_tokens, changes
                )
            except Exception:
                sequence.key = before
                raise
            self._busy[sequence] = pending
            self._count = max(self._count, sequence.number + 1)
        return sequence, pending

    def _options(self, sampling: Sampling) -> SamplingOptions:
        """Returns the options of a request; raises RequestError for values out of range."""
        check_ids(sampling.stop_ids, self._engine.vocab_size, "stop_token_ids")
        given = {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "max_turn_tokens": sampling.max_tokens,
        }
        names = {"max_turn_tokens": "max_tokens"}
        return dataclasses.replace(self._defaults, **_valid(SamplingOptions, given, names))

    def _changes(self, sampling: Sampling) -> Changes | None:
        """Returns the changes of the logits of a request; None if nothing is changed."""
        names = [field.name for field in dataclasses.fields(LogitOptions)]
        given = _valid(LogitOptions, {name: getattr(sampling, name) for name in names})
        check_ids(given.get("logit_bias", ()), self._engine.vocab_size, "logit_bias")
        options = LogitOptions(**given)
        if sampling.constraint is not None:
            return Changes(options, self._compile(sampling.constraint))
        return None if options == LogitOptions() else Changes(options)

    def _compile(self, constraint: Constraint) -> TokenMatcher:
        """Returns the state of the grammar of an answer."""
        field = constraint.field
        if self._engine.grammars is None:
            raise RequestError(f"{field} is not supported; leave it out", param=field)
        grammar = make_grammar(constraint, self.form.tools)
        try:
            return self._engine.grammars.compile(grammar)
        except ValueError as error:
            raise RequestError(f"{field}: {error}", param=field) from error

    def _finishing(
        self, pending: Pending, sequence: TokenSequence, store: Callable[[Message, str], None]
    ) -> Pending:
        """Returns a request whose result is set after `store` was called with its answer, if any.

        The next request of the client may arrive as soon as it has the result.
        """
        result: concurrent.futures.Future[Generation] = concurrent.futures.Future()
        result.set_running_or_notify_cancel()

        def end(future: "concurrent.futures.Future[Generation]") -> None:
            with self._lock:
                del self._busy[sequence]
                self._finished.notify_all()
                if not future.exception():
                    found = future.result()
                    store({"role": "assistant", "content": found.text}, found.stop)
                    return
                if not len(sequence) and self._count == sequence.number + 1:
                    self._count -= 1  # a repeated request gets the same number and random key
                self._drop({sequence})

        def pass_on(future: "concurrent.futures.Future[Generation]") -> None:
            try:
                end(future)
                found = future.result()
            except (Exception, concurrent.futures.CancelledError) as error:  # noqa: BLE001
                result.set_exception(error)
            else:
                result.set_result(found)

        pending.result.add_done_callback(pass_on)
        return dataclasses.replace(pending, result=result)

    def _store(
        self,
        sequence: TokenSequence,
        messages: tuple[Message, ...],
        name: str,
        exact: bytes,
        loose: frozenset[bytes],
    ) -> None:
        """Stores an answered conversation. Of two with the same texts, the later one counts."""
        is_stopped = sequence.answers[-1].is_stopped
        known = _Known(sequence, len(sequence), len(messages), is_stopped, loose)
        replaced = self._forget(exact)
        self._known[exact] = known
        self._by_loose.update(dict.fromkeys(loose, exact))
        if self._max_known is None:
            self.sequences[sequence] = messages
            self.answers[name or f"answer {len(self.answers)}"] = sequence.answers[-1]
            return
        self.sequences[sequence] = ()
        dropped = set() if replaced is None else {replaced.sequence}
        while len(self._known) > self._max_known:
            old = self._forget(next(iter(self._known)))
            assert old is not None, "it was found"
            dropped.add(old.sequence)
        self._drop(dropped)

    def _forget(self, exact: bytes) -> _Known | None:
        """Removes a known conversation with all of its digests; returns it, or None."""
        old = self._known.pop(exact, None)
        for digest in () if old is None else old.loose:
            if self._by_loose.get(digest) == exact:
                del self._by_loose[digest]
        return old

    def _drop(self, sequences: set[TokenSequence]) -> None:
        """Drops those sequences that no request can continue; an episode's are its record."""
        if self._max_known is None or not sequences:
            return
        known = {other.sequence for other in self._known.values()}
        for sequence in sequences - known - set(self._busy):
            self._engine.forget(sequence)
            self.sequences.pop(sequence, None)


def _valid(
    kind: type, given: Mapping[str, Any], names: Mapping[str, str] = types.MappingProxyType({})
) -> dict[str, Any]:
    """Returns those values of a class of options that are not None.

    Raises:
      RequestError: A value is out of the range in the annotations of `kind`. The error has the name
        of the field in `names`, if it differs.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for name, annotation in annotations(kind).items():
        if name in found and (valid := misfit(found[name], annotation)):
            field = names.get(name, name)
            raise RequestError(f"{field}={found[name]!r}: expected {valid}", param=field)
    return found
