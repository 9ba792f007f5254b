"""Work that the routes of all APIs share: reading, sampling, cancelling and counting."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import prometheus_client
from absl import logging
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from agentgym_jax.serving import streams, wire
from agentgym_jax.serving.backend import Backend
from agentgym_jax.serving.bodies import read_body
from agentgym_jax.serving.error_answers import TOO_LONG
from agentgym_jax.serving.requests import (
    Chat,
    Generation,
    OnTokens,
    Pending,
    RequestError,
    check_ids,
)

_MAX_TOKEN_CHARACTERS = 256  # no token of a usual vocabulary is longer
_MAX_UNKNOWN = 100  # unknown fields of requests that are logged
_WATCH_S = 0.2  # interval at which a connection is checked, in seconds


class Service:
    """Samples for the routes of all APIs."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self._unknown: set[str] = set()  # unknown fields that were logged
        # Event loop and its lock.
        self._loop_lock: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock]
        self._loop_lock = (None, asyncio.Lock())
        self.registry = prometheus_client.CollectorRegistry()
        self._prompt = prometheus_client.Counter(
            "agentgym_prompt_tokens", "Tokens of prompts.", registry=self.registry
        )
        self._sampled = prometheus_client.Counter(
            "agentgym_sampled_tokens", "Sampled tokens.", registry=self.registry
        )
        loads = {"running": lambda: backend.load()[0], "waiting": lambda: backend.load()[1]}
        for name, load in loads.items():
            prometheus_client.Gauge(
                f"agentgym_requests_{name}", "Requests.", registry=self.registry
            ).set_function(load)

    def chat(self, request: Request) -> Chat:
        """Returns the conversations that a request belongs to."""
        return self.backend.chat(request.path_params.get("episode"))

    async def read_chat(
        self, request: Request, kind: type[Any]
    ) -> tuple[Chat, Any, list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns the conversations, the body, and its messages and tools in OpenAI's form.

        Args:
          request: Request of any API.
          kind: Type of its body, with `check`, `plain_messages` and `plain_tools`.

        Raises:
          RequestError: A field is wrong or not supported, or the request exceeds the context.
        """
        raw, chat = await read_body(request), self.chat(request)

        def read() -> tuple[Chat, Any, list[dict[str, Any]], list[dict[str, Any]]]:
            body = self.parse(kind, raw)
            messages, tools = body.plain_messages(), body.plain_tools()
            self.check_size([messages, tools], len(messages) + len(tools))
            return chat, body, messages, tools

        return await self.run(read)

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that may take long in a thread, while the loop serves the streams.

        Requests are read and encoded one after another, in the order of arrival.
        """
        loop = asyncio.get_running_loop()
        if self._loop_lock[0] is not loop:  # a trainer starts its server for every rollout
            self._loop_lock = (loop, asyncio.Lock())
        async with self._loop_lock[1]:
            # A thread that outlived the server would keep the process from ending.
            worker = concurrent.futures.ThreadPoolExecutor(1, "request")
            try:
                return await loop.run_in_executor(worker, function, *arguments)
            finally:
                worker.shutdown(wait=False)

    def parse(self, kind: type[Any], raw: bytes) -> Any:
        """Returns a request; raises RequestError for a wrong field or another model."""
        body = wire.parse(kind, raw)
        body.check()
        self._check_model(body.model)
        for name in (body.model_extra or {}).keys() - wire.HARMLESS - self._unknown:
            if len(self._unknown) < _MAX_UNKNOWN:
                self._unknown.add(name)
                logging.warning("requests have the unknown field %.100r, which is ignored", name)
        return body

    def check_size(self, texts: Any, parts: int = 0) -> None:
        """Refuses texts far beyond the context before a template or the tokenizer reads them.

        Args:
          texts: JSON value with all texts of the request.
          parts: Number of messages and tools, each of which has at least one token.
        """
        count = _count_characters(texts) + _MAX_TOKEN_CHARACTERS * parts
        if count > _MAX_TOKEN_CHARACTERS * self.backend.context_length:
            raise RequestError(
                f"the request has {count} characters (of which {_MAX_TOKEN_CHARACTERS} for each "
                "message and tool), which cannot fit the context of "
                f"{self.backend.context_length} tokens; shorten it",
                TOO_LONG,
            )

    def check_ids(self, prompts: Sequence[Sequence[int]], field: str) -> None:
        """Refuses prompts that are empty, leave no token of the context, or have unknown tokens."""
        if not all(map(len, prompts)):
            raise RequestError(f"{field} is empty; give at least one token", param=field)
        longest = max(map(len, prompts))
        if longest >= self.backend.context_length:
            raise RequestError(
                f"{field} has {longest} tokens and must leave room for an answer within "
                f"{self.backend.context_length}; shorten it",
                TOO_LONG,
                field,
            )
        for prompt in prompts:
            check_ids(prompt, self.backend.vocab_size, field)

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self.backend.model_name:
            raise RequestError(
                f"there is no model {model[:100]!r}; this server has {self.backend.model_name!r}",
                "model_not_found",
                "model",
            )

    def _count(self, results: Sequence[Generation]) -> None:
        self._prompt.inc(sum(len(result.prompt_ids) for result in results))
        self._sampled.inc(sum(len(result.token_ids) for result in results))

    async def wait(self, request: Request, submit: "Submit", count: int) -> list[Generation]:
        """Returns the results of `count` requests; cancels all if one fails or the client is gone."""
        pending = await self.run(_submit_all, submit, count)
        futures = [asyncio.wrap_future(p.result) for p in pending]
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=_WATCH_S, return_when=asyncio.FIRST_EXCEPTION
                )
                for future in done:
                    future.result()
                if waiting and await request.is_disconnected():
                    raise ClientDisconnect
        finally:
            _cancel(pending, futures)
        results = [future.result() for future in futures]
        self._count(results)
        return results

    async def stream(
        self,
        request: Request,
        submit: "Submit",
        count: int,
        format_: streams.Format,
    ) -> Response:
        """Returns a stream of events. Requests that cannot start fail before the stream begins."""
        loop = asyncio.get_running_loop()
        progress = streams.Progress(count, loop)
        pending = await self.run(_submit_all, submit, count, progress.callback)
        format_.num_prompt = pending[0].num_prompt
        futures = [asyncio.wrap_future(p.result) for p in pending]
        for future in futures:
            future.add_done_callback(lambda _: progress.changed.set())

        async def events() -> AsyncGenerator[str, None]:
            async for event in streams.events(progress, futures, format_, request, _WATCH_S):
                yield event
            if all(future.done() and not future.exception() for future in futures):
                self._count([future.result() for future in futures])

        return streams.EventResponse(events(), lambda: _cancel(pending, futures))


def _count_characters(value: Any) -> int:
    """Returns the number of characters of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _count_characters(entry) for key, entry in value.items())
    if isinstance(value, list):
        return sum(map(_count_characters, value))
    return 1


# Function from the number of a choice and its callback to the submitted request.
Submit = Callable[[int, OnTokens | None], Pending]


def _submit_all(
    submit: Submit, count: int, callback: Callable[[int], OnTokens | None] = lambda number: None
) -> list[Pending]:
    """Submits the requests of all choices; cancels them if one of them is refused."""
    pending: list[Pending] = []
    try:
        for number in range(count):
            pending.append(submit(number, callback(number)))
    except Exception:
        _cancel(pending, [])
        raise
    return pending


def _cancel(pending: Sequence[Pending], futures: Sequence["asyncio.Future[Generation]"]) -> None:
    for request in pending:
        if not request.result.done():
            request.cancel()
    for future in futures:
        if future.done():
            with contextlib.suppress(asyncio.CancelledError):
                future.exception()  # marks the error as seen
        else:
            future.cancel()
