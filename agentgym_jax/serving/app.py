"""HTTP application of a served policy: OpenAI's routes, for all clients or for one episode."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

import numpy as np
import prometheus_client
from absl import logging
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agentgym_jax.serving import streams, wire
from agentgym_jax.serving.guard import Guard
from agentgym_jax.serving.requests import (
    Chat,
    Generation,
    NotServingError,
    OverloadedError,
    Pending,
    RequestError,
    answer_name,
)
from agentgym_jax.text.tool_chat import ToolForm

MAX_BODY = 32 * 2**20  # bytes
_MAX_UNREAD = 8 * MAX_BODY  # bytes of a longer body that are read so that its sender gets an answer
_MAX_TOKEN_CHARACTERS = 256  # no token of a usual vocabulary is longer
_MAX_UNKNOWN = 100  # unknown fields of requests that are logged
_EPISODE = "/episodes/{episode}"  # prefix of the routes of one episode
_MAX_BODIES = 8 * MAX_BODY  # bytes of all bodies that are being read
READ_S = 60.0  # time for a body, in seconds
_TOO_LARGE, _SLOW = "too_large", "timeout"
_STATUS = {_TOO_LARGE: 413, _SLOW: 408}  # by code; other errors of a request are answered with 400
_WATCH_S = 0.2  # interval at which a connection is checked, in seconds


class UnknownEpisodeError(Exception):
    """There is no running episode of this name."""


class Backend(Protocol):
    """Interface of the application to the served policy.

    Attributes:
      model_name: Name of the model in answers.
      context_length: Maximum number of tokens of a conversation.
      tool_form: Form of tool calls in sampled text.
    """

    model_name: str
    context_length: int
    tool_form: ToolForm

    def chat(self, episode: str | None) -> Chat:
        """Returns the conversations of an episode; None for those of all other clients.

        Raises:
          UnknownEpisodeError: There is no such episode.
        """

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids."""

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes of a token."""

    def load(self) -> tuple[int, int]:
        """Returns the number of sampling and of waiting requests."""


def make_app(backend: Backend, *, token: str = "", routes: Sequence[Route] = ()) -> ASGIApp:
    """Returns the application; with `token`, requests need it as bearer token.

    `routes` are served in addition.
    """
    served = _Served(backend)
    own = [
        Route("/health", served.health),
        Route("/metrics", served.metrics),
        Route("/openapi.json", served.openapi),
    ]
    for prefix in ("", _EPISODE):
        own += [
            Route(f"{prefix}/v1/models", served.models),
            Route(f"{prefix}/v1/models/{{name:path}}", served.model),
            Route(f"{prefix}/v1/chat/completions", served.chat, methods=["POST"]),
            Route(f"{prefix}/v1/completions", served.complete, methods=["POST"]),
            Route(f"{prefix}/inference/v1/generate", served.generate, methods=["POST"]),
        ]
    handlers: dict[Any, Any] = {
        RequestError: _answer_request_error,
        UnknownEpisodeError: _answer_error(404, "not_found_error", "unknown_episode"),
        OverloadedError: _answer_error(429, "rate_limit_error", "overloaded", retry=1),
        NotServingError: _answer_error(503, "server_error", "not_serving", retry=5),
        404: _answer_error(404, "not_found_error", "unknown_url", "there is no such route"),
        405: _answer_error(405, "invalid_request_error", "method", "wrong method for this route"),
        ClientDisconnect: _answer_nobody,
        500: _answer_error(500, "server_error", "internal", "the server failed; see its log"),
    }
    served_routes = [*own, *routes]
    app = Starlette(routes=served_routes, exception_handlers=handlers)
    app.state.body_bytes = 0  # of the bodies that are being read
    return Guard(app, token, served_routes, served.registry)


def _answer_error(status: int, kind: str, code: str, message: str = "", retry: int = 0) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        body = wire.error_body(message or str(error), kind, code)
        headers = {"Retry-After": str(retry)} if retry else None
        return JSONResponse(body, status, headers)

    return answer


async def _answer_request_error(request: Request, error: Any) -> Response:
    body = wire.error_body(str(error), "invalid_request_error", error.code, error.param)
    return JSONResponse(body, _STATUS[error.code] if error.code in _STATUS else 400)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def read_body(request: Request) -> bytes:
    """Returns the body of a request.

    Raises:
      RequestError: It exceeds MAX_BODY, or takes longer than `READ_S`.
      OverloadedError: All bodies that are being read exceed `_MAX_BODIES`.
    """
    body, count, state = bytearray(), 0, request.app.state
    try:
        async with asyncio.timeout(READ_S):
            async for part in request.stream():
                count += len(part)
                if count <= MAX_BODY:
                    body += part
                    state.body_bytes += len(part)
                elif count > _MAX_UNREAD:
                    break
                if state.body_bytes > _MAX_BODIES:
                    raise OverloadedError("other requests with large bodies are being read")
    except TimeoutError:
        raise RequestError(f"the body took more than {READ_S:g} s; send it faster", _SLOW) from None
    finally:
        state.body_bytes -= len(body)
    if count > MAX_BODY:
        raise RequestError(f"the body exceeds {MAX_BODY} bytes; send less", _TOO_LARGE)
    return bytes(body)


class _Served:
    """Handlers of the routes."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._unknown: set[str] = set()  # unknown fields that were logged
        self._loop_lock: tuple[Any, asyncio.Lock] = (None, asyncio.Lock())  # event loop and its lock
        self.registry = prometheus_client.CollectorRegistry()
        make = {"registry": self.registry}
        self._prompt = prometheus_client.Counter(
            "agentgym_prompt_tokens", "Tokens of prompts.", **make
        )
        self._sampled = prometheus_client.Counter(
            "agentgym_sampled_tokens", "Sampled tokens.", **make
        )
        for place, name in enumerate(("running", "waiting")):
            gauge = prometheus_client.Gauge(f"agentgym_requests_{name}", "Requests.", **make)
            gauge.set_function(lambda place=place: backend.load()[place])

    async def health(self, request: Request) -> Response:
        running, waiting = self._backend.load()
        return JSONResponse({"status": "ok", "running": running, "waiting": waiting})

    async def metrics(self, request: Request) -> Response:
        text = prometheus_client.generate_latest(self.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(wire.openapi())

    async def models(self, request: Request) -> Response:
        self._chat(request)
        return JSONResponse({"object": "list", "data": [self._describe_model()]})

    async def model(self, request: Request) -> Response:
        self._chat(request)
        name = request.path_params["name"]
        if name != self._backend.model_name:
            message = (
                f"there is no model {name[:100]!r}; this server has {self._backend.model_name!r}"
            )
            error = wire.error_body(message, "not_found_error", "model_not_found", "model")
            return JSONResponse(error, 404)
        return JSONResponse(self._describe_model())

    def _describe_model(self) -> dict[str, Any]:
        return {
            "id": self._backend.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "agentgym_jax",
            "max_model_len": self._backend.context_length,
        }

    async def chat(self, request: Request) -> Response:
        raw, chat = await read_body(request), self._chat(request)

        def read() -> tuple[wire.ChatRequest, list[dict[str, Any]], list[dict[str, Any]]]:
            body: wire.ChatRequest = self._parse(wire.ChatRequest, raw)
            messages = [message.plain(i) for i, message in enumerate(body.messages)]
            tools = body.plain_tools()
            self._check_size([messages, tools], len(messages) + len(tools))
            return body, messages, tools

        body, messages, tools = await self._run(read)
        reply = wire.Reply("chat.completion", self._backend.model_name)
        form = self._backend.tool_form if body.may_call else None

        def submit(number: int, on_tokens: Any) -> Pending:
            return chat.submit_chat(messages, tools, body.sampling(number, reply.id), on_tokens)

        def choice(number: int, result: Generation) -> dict[str, Any]:
            ids = np.concatenate([result.prompt_ids, result.token_ids]).tobytes()
            prefix = f"{hashlib.sha256(ids).hexdigest()[:24]}_{number}"
            message = wire.assistant_message(result.text, form, call_prefix=prefix)
            reason = "tool_calls" if "tool_calls" in message else result.finish_reason
            return {
                "index": number,
                "message": message,
                "finish_reason": reason,
                "logprobs": self._logprobs(result) if body.logprobs else None,
                **_ids(body, result),
            }

        if body.stream:
            format_ = streams.ChatFormat(reply, self._backend.decode, body, choice, form)
            return await self._stream(request, submit, body.n, format_)
        results = await self._wait(request, submit, body.n)

        def write() -> Response:
            choices = [choice(i, result) for i, result in enumerate(results)]
            content = reply.whole(choices, results, body.n)
            if body.return_token_ids:
                content["prompt_token_ids"] = results[0].prompt_ids.tolist()
            return JSONResponse(content)

        return await self._run(write)

    async def complete(self, request: Request) -> Response:
        raw, chat = await read_body(request), self._chat(request)

        def read() -> tuple[wire.CompletionRequest, list[list[int]]]:
            body: wire.CompletionRequest = self._parse(wire.CompletionRequest, raw)
            prompts = body.prompts()
            if len(prompts) * body.n > wire.MAX_CHOICES:
                raise RequestError(
                    f"{len(prompts)} prompts with n={body.n}: at most {wire.MAX_CHOICES} choices",
                    param="prompt",
                )
            self._check_size([p for p in prompts if isinstance(p, str)])
            ids = [self._backend.encode(p) if isinstance(p, str) else p for p in prompts]
            self._check_ids(ids, "prompt")
            return body, ids

        body, ids = await self._run(read)
        reply = wire.Reply("text_completion", self._backend.model_name)

        def submit(number: int, on_tokens: Any) -> Pending:
            prompt = ids[number // body.n]
            own = dataclasses.replace(
                body.sampling(number % body.n), name=answer_name(reply.id, number)
            )
            return chat.submit_tokens(prompt, own, on_tokens)

        def choice(number: int, result: Generation) -> dict[str, Any]:
            logprobs = None
            if body.logprobs is not None:
                logprobs = {
                    "tokens": self._names(result),
                    "token_logprobs": result.logprobs.tolist(),
                    "top_logprobs": None,
                    "text_offset": None,
                }
            return {
                "index": number,
                "text": result.text,
                "finish_reason": result.finish_reason,
                "logprobs": logprobs,
                **_ids(body, result),
            }

        count = len(ids) * body.n
        if body.stream:
            format_ = streams.TextFormat(reply, self._backend.decode, body, choice)
            return await self._stream(request, submit, count, format_)
        results = await self._wait(request, submit, count)

        def write() -> Response:
            choices = [choice(i, result) for i, result in enumerate(results)]
            return JSONResponse(reply.whole(choices, results, body.n))

        return await self._run(write)

    async def generate(self, request: Request) -> Response:
        raw, chat = await read_body(request), self._chat(request)
        body: wire.GenerateRequest = await self._run(self._parse, wire.GenerateRequest, raw)
        self._check_ids([body.token_ids], "token_ids")
        options = body.sampling_params
        name = f"gen-{uuid.uuid4().hex}"

        def submit(number: int, on_tokens: Any) -> Pending:
            return chat.submit_tokens(body.token_ids, options.sampling(number, name), on_tokens)

        results = await self._wait(request, submit, options.n)
        choices = [
            {
                "index": i,
                "token_ids": result.token_ids.tolist(),
                "logprobs": wire.token_logprobs(
                    result,
                    [f"token_id:{token}" for token in result.token_ids],
                    self._parts(result),
                ),
                "finish_reason": result.finish_reason,
            }
            for i, result in enumerate(results)
        ]
        return JSONResponse(
            {
                "request_id": name,
                "choices": choices,
                "prompt_token_ids": body.token_ids,
                "usage": wire.usage(results, options.n),
            }
        )

    def _chat(self, request: Request) -> Chat:
        return self._backend.chat(request.path_params.get("episode"))

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self._backend.model_name:
            raise RequestError(
                f"there is no model {model[:100]!r}; this server has {self._backend.model_name!r}",
                "model_not_found",
                "model",
            )

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
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

    def _parse(self, kind: type[Any], raw: bytes) -> Any:
        """Returns a request; raises RequestError for a wrong field or another model."""
        body = wire.parse(kind, raw)
        body.check()
        self._check_model(body.model)
        for name in (body.model_extra or {}).keys() - wire.HARMLESS - self._unknown:
            if len(self._unknown) < _MAX_UNKNOWN:
                self._unknown.add(name)
                logging.warning("requests have the unknown field %.100r, which is ignored", name)
        return body

    def _check_size(self, texts: Any, parts: int = 0) -> None:
        """Refuses texts far beyond the context before a template or the tokenizer reads them.

        Args:
          texts: JSON value with all texts of the request.
          parts: Number of messages and tools, each of which has at least one token.
        """
        count = _count_characters(texts) + _MAX_TOKEN_CHARACTERS * parts
        if count > _MAX_TOKEN_CHARACTERS * self._backend.context_length:
            raise RequestError(
                f"the request has {count} characters (of which {_MAX_TOKEN_CHARACTERS} for each "
                "message and tool), which cannot fit the context of "
                f"{self._backend.context_length} tokens; shorten it",
                "context_length_exceeded",
            )

    def _check_ids(self, prompts: Sequence[Sequence[int]], field: str) -> None:
        """Refuses prompts that leave no token of the context."""
        longest = max(map(len, prompts))
        if longest >= self._backend.context_length:
            raise RequestError(
                f"{field} has {longest} tokens and must leave room for an answer within "
                f"{self._backend.context_length}; shorten it",
                "context_length_exceeded",
                field,
            )

    def _names(self, result: Generation) -> list[str]:
        """Returns the texts of the sampled tokens."""
        return [self._backend.decode([token]) for token in result.token_ids.tolist()]

    def _parts(self, result: Generation) -> list[bytes]:
        """Returns the bytes of the sampled tokens."""
        return [self._backend.token_bytes(token) for token in result.token_ids.tolist()]

    def _logprobs(self, result: Generation) -> dict[str, Any]:
        return wire.token_logprobs(result, self._names(result), self._parts(result))

    def _count(self, results: Sequence[Generation]) -> None:
        self._prompt.inc(sum(len(result.prompt_ids) for result in results))
        self._sampled.inc(sum(len(result.token_ids) for result in results))

    async def _wait(self, request: Request, submit: "_Submit", count: int) -> list[Generation]:
        """Returns the results of `count` requests; cancels all if one fails or the client is gone."""
        pending = await self._run(_submit_all, submit, count)
        futures = [asyncio.wrap_future(p.result) for p in pending]
        try:
            waiting: set[Any] = set(futures)
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

    async def _stream(
        self,
        request: Request,
        submit: "_Submit",
        count: int,
        format_: streams.Format,
    ) -> Response:
        """Returns a stream of events. Requests that cannot start fail before the stream begins."""
        loop = asyncio.get_running_loop()
        progress = streams.Progress(count, loop)
        pending = await self._run(_submit_all, submit, count, progress.callback)
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


def _ids(body: Any, result: Generation) -> dict[str, Any]:
    """Returns the token ids of a choice; all choices of a chat have the same prompt."""
    if not body.return_token_ids:
        return {}
    return {
        "prompt_token_ids": result.prompt_ids.tolist(),
        "token_ids": result.token_ids.tolist(),
    }


# Function from the number of a choice and its callback to the submitted request.
_Submit = Callable[[int, Any], Pending]


def _submit_all(
    submit: _Submit, count: int, callback: Callable[[int], Any] = lambda number: None
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


def _cancel(pending: Sequence[Pending], futures: Sequence["asyncio.Future[Any]"]) -> None:
    for request in pending:
        if not request.result.done():
            request.cancel()
    for future in futures:
        if future.done():
            with contextlib.suppress(asyncio.CancelledError):
                future.exception()  # marks the error as seen
        else:
            future.cancel()
