"""Server-sent events of answers that are still being sampled."""

import abc
import asyncio
import concurrent.futures
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from agentgym_jax.serving import replies
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.error_answers import error_body
from agentgym_jax.serving.requests import Generation, OnTokens
from agentgym_jax.text.growing import GrowingText


class Progress:
    """Latest tokens of each choice. A slow reader skips states, so nothing queues up."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop):
        self.changed = asyncio.Event()
        self.latest: list[Sequence[int]] = [()] * count
        self._loop = loop

    def callback(self, number: int) -> OnTokens:
        """Returns the callback of a choice, which the engine's thread calls."""

        def store(tokens: Sequence[int]) -> None:
            self.latest[number] = tokens
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.changed.set)

        return store


class EventResponse(StreamingResponse):
    """Response with server-sent events that always ends its requests."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[str, None], close: Callable[[], None]):
        """Creates the response; it calls `close` once, also if the client is gone before it."""
        super().__init__(content, headers={"Cache-Control": "no-cache"})
        self._content = content
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()
            with contextlib.suppress(RuntimeError):  # it is still running after a cancellation
                await self._content.aclose()


class Format(abc.ABC):
    """Writes the events of one request; remembers the text that it has sent.

    Attributes:
      num_prompt: Number of tokens of the prompt, known when the stream begins.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        form: AnswerForm,
        *,
        has_tools: bool,
        stop: Sequence[str] = (),
    ):
        self.num_prompt = 0
        self._decode = decode
        self._form = form
        self._has_tools = has_tools
        self._stop = tuple(stop)
        self._texts: dict[int, GrowingText] = {}
        self._sent: dict[tuple[int, str], int] = {}  # characters sent, by choice and kind of text

    @abc.abstractmethod
    def begin(self, number: int) -> list[str]:
        """Returns the events before the first text of a choice."""

    @abc.abstractmethod
    def end(self, number: int, result: Generation) -> list[str]:
        """Returns the last events of a choice."""

    def close(self, results: Sequence[Generation]) -> list[str]:
        """Returns the events after all choices; none by default."""
        return []

    @abc.abstractmethod
    def fail(self, message: str) -> str:
        """Returns the last event of a stream that fails."""

    @abc.abstractmethod
    def _write(self, number: int, kind: str, text: str) -> list[str]:
        """Returns the events of new text; its kind is `thinking` or `text`."""

    def grow(self, number: int, tokens: Sequence[int]) -> list[str]:
        """Returns the events for all tokens of a choice so far."""
        growing = self._texts.setdefault(number, GrowingText(self._decode))
        answer = growing.update(tokens)[0]
        parts = self._form.stable(answer, has_tools=self._has_tools, stop=self._stop)
        return self._write_news(number, parts.thinking, parts.text)

    def _write_news(self, number: int, thinking: str, text: str) -> list[str]:
        """Returns the events of the parts of both texts that were not sent yet."""
        found = []
        for kind, whole in (("thinking", thinking), ("text", text)):
            sent = self._sent.get((number, kind), 0)
            if len(whole) > sent:
                self._sent[number, kind] = len(whole)
                found += self._write(number, kind, whole[sent:])
        return found


class _OpenAiFormat(Format):
    """Events of OpenAI's completions."""

    def __init__(
        self,
        reply: replies.Reply,
        decode: Callable[[Sequence[int]], str],
        body: Any,
        choice: Callable[[int, Generation], dict[str, Any]],
        form: AnswerForm,
        *,
        has_tools: bool = False,
    ):
        super().__init__(decode, form, has_tools=has_tools, stop=body.sampling().stop)
        self._reply = reply
        self._body = body
        self._choice = choice

    def close(self, results: Sequence[Generation]) -> list[str]:
        """Implements `Format.close`."""
        done, options = "data: [DONE]\n\n", self._body.stream_options
        if options is None or not options.include_usage:
            return [done]
        return [self._reply.chunk([], usage=replies.usage(results, self._body.n)), done]

    def fail(self, message: str) -> str:
        """Implements `Format.fail`."""
        return f"data: {json.dumps(error_body(message, 'server_error', 'stream'))}\n\n"


class ChatFormat(_OpenAiFormat):
    """Events of `/v1/chat/completions`."""

    def begin(self, number: int) -> list[str]:
        """Implements `Format.begin`."""
        return [self._chunk(number, {"role": "assistant", "content": ""})]

    def end(self, number: int, result: Generation) -> list[str]:
        """Implements `Format.end`; log-probabilities and ids are in the last event."""
        whole = self._choice(number, result)
        message = whole["message"]
        thinking = message.get("reasoning_content") or ""
        found = self._write_news(number, thinking, message["content"] or "")
        if calls := message.get("tool_calls"):
            delta = [{"index": i, **call} for i, call in enumerate(calls)]
            found.append(self._chunk(number, {"tool_calls": delta}))
        last = {name: value for name, value in whole.items() if name != "message"} | {"delta": {}}
        has_ids = self._body.return_token_ids
        prompt = {"prompt_token_ids": result.prompt_ids.tolist()} if has_ids else {}
        return [*found, self._reply.chunk([last], **prompt)]

    def _write(self, number: int, kind: str, text: str) -> list[str]:
        field = "reasoning_content" if kind == "thinking" else "content"
        return [self._chunk(number, {field: text})]

    def _chunk(self, number: int, delta: Any) -> str:
        return self._reply.chunk(
            [{"index": number, "delta": delta, "finish_reason": None, "logprobs": None}]
        )


class TextFormat(_OpenAiFormat):
    """Events of `/v1/completions`."""

    def begin(self, number: int) -> list[str]:
        """Implements `Format.begin`."""
        return []

    def end(self, number: int, result: Generation) -> list[str]:
        """Implements `Format.end`."""
        whole = self._choice(number, result)
        news = result.text[self._sent.get((number, "text"), 0) :]
        return [self._reply.chunk([{**whole, "text": news}])]

    def _write(self, number: int, kind: str, text: str) -> list[str]:
        return [
            self._reply.chunk(
                [{"index": number, "text": text, "finish_reason": None, "logprobs": None}]
            )
        ]


async def events(
    progress: Progress,
    futures: "Sequence[asyncio.Future[Generation]]",
    format_: Format,
    request: Request,
    watch_s: float,
) -> AsyncIterator[str]:
    """Yields the events of a request; an error after the start becomes an event."""
    for number in range(len(futures)):
        for event in format_.begin(number):
            yield event
    shown = [0] * len(futures)
    ended: set[int] = set()
    while len(ended) < len(futures):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(progress.changed.wait(), watch_s)
        progress.changed.clear()
        if await request.is_disconnected():
            return
        for number, future in enumerate(futures):
            if number in ended:
                continue
            tokens = progress.latest[number]
            if len(tokens) > shown[number] and not future.done():
                shown[number] = len(tokens)
                for event in format_.grow(number, tokens):
                    yield event
            if future.done():
                ended.add(number)
                try:
                    result = future.result()
                except (Exception, concurrent.futures.CancelledError) as error:  # noqa: BLE001
                    yield format_.fail(str(error) or "the request ended")
                    return
                for event in format_.end(number, result):
                    yield event
    for event in format_.close([future.result() for future in futures]):
        yield event


def named_event(data: Mapping[str, Any]) -> str:
    """Returns a server-sent event that is named by its type."""
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
