"""Server-sent events of answers that are still being sampled."""

import abc
import asyncio
import concurrent.futures
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from agentgym_jax.serving import wire
from agentgym_jax.serving.requests import Generation, OnTokens
from agentgym_jax.serving.tool_calls import stable_text
from agentgym_jax.text.growing import GrowingText
from agentgym_jax.text.tool_chat import ToolForm


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
    """Writes the events of one request; remembers the text that it has sent."""

    def __init__(
        self,
        reply: wire.Reply,
        decode: Callable[[Sequence[int]], str],
        body: Any,
        choice: Callable[[int, Generation], dict[str, Any]],
        form: ToolForm | None = None,
    ):
        self._reply = reply
        self._decode = decode
        self._body = body
        self._choice = choice
        self._form = form  # form of tool calls; None without tools
        self._stop = body.sampling().stop
        self._texts: dict[int, GrowingText] = {}
        self._sent: dict[int, int] = {}  # characters that were sent, by choice

    @abc.abstractmethod
    def begin(self, number: int) -> list[str]:
        """Returns the events before the first text of a choice."""

    @abc.abstractmethod
    def end(self, number: int, result: Generation) -> list[str]:
        """Returns the last events of a choice."""

    @abc.abstractmethod
    def _write(self, number: int, text: str) -> str:
        """Returns an event with new text."""

    def grow(self, number: int, tokens: Sequence[int]) -> list[str]:
        """Returns the events for all tokens of a choice so far."""
        growing = self._texts.setdefault(number, GrowingText(self._decode))
        text = stable_text(
            growing.update(tokens)[0],
            has_tools=self._form is not None,
            stop=self._stop,
            form=self._form or ToolForm(),
        )
        news = self._news(number, text)
        return [self._write(number, news)] if news else []

    def close(self, results: Sequence[Generation]) -> list[str]:
        """Returns the events after all choices."""
        options = self._body.stream_options
        if options is None or not options.include_usage:
            return []
        return [self._reply.chunk([], usage=wire.usage(results, self._body.n))]

    def _news(self, number: int, text: str) -> str:
        """Returns the part of a text that was not sent yet, and notes it as sent."""
        sent = self._sent.get(number, 0)
        self._sent[number] = max(sent, len(text))
        return text[sent:]


class ChatFormat(Format):
    """Events of `/v1/chat/completions`."""

    def begin(self, number: int) -> list[str]:
        """Implements `Format.begin`."""
        return [self._chunk(number, {"role": "assistant", "content": ""})]

    def end(self, number: int, result: Generation) -> list[str]:
        """Implements `Format.end`; log-probabilities and ids are in the last event."""
        whole = self._choice(number, result)
        message, found = whole["message"], []
        if news := self._news(number, message["content"] or ""):
            found.append(self._write(number, news))
        if calls := message.get("tool_calls"):
            delta = [{"index": i, **call} for i, call in enumerate(calls)]
            found.append(self._chunk(number, {"tool_calls": delta}))
        last = {name: value for name, value in whole.items() if name != "message"} | {"delta": {}}
        has_ids = self._body.return_token_ids
        prompt = {"prompt_token_ids": result.prompt_ids.tolist()} if has_ids else {}
        return [*found, self._reply.chunk([last], **prompt)]

    def _write(self, number: int, text: str) -> str:
        return self._chunk(number, {"content": text})

    def _chunk(self, number: int, delta: Any) -> str:
        return self._reply.chunk(
            [{"index": number, "delta": delta, "finish_reason": None, "logprobs": None}]
        )


class TextFormat(Format):
    """Events of `/v1/completions`."""

    def begin(self, number: int) -> list[str]:
        """Implements `Format.begin`."""
        return []

    def end(self, number: int, result: Generation) -> list[str]:
        """Implements `Format.end`."""
        whole = self._choice(number, result)
        news = self._news(number, result.text)
        return [self._reply.chunk([{**whole, "text": news}])]

    def _write(self, number: int, text: str) -> str:
        return self._reply.chunk(
            [{"index": number, "text": text, "finish_reason": None, "logprobs": None}]
        )


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
                    yield f"data: {_error(error)}\n\n"
                    return
                for event in format_.end(number, result):
                    yield event
    for event in format_.close([future.result() for future in futures]):
        yield event
    yield "data: [DONE]\n\n"


def _error(error: BaseException) -> str:
    return json.dumps(wire.error_body(str(error) or "the request ended", "server_error", "stream"))
