"""HTTP application of a served policy: all routes, for all clients or for one episode."""

import asyncio
import dataclasses
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import prometheus_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agentgym_jax.serving import replies, streams, wire
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.backend import Backend
from agentgym_jax.serving.bodies import read_body
from agentgym_jax.serving.error_answers import HANDLERS, error_body
from agentgym_jax.serving.guard import Guard
from agentgym_jax.serving.messages_api import CountRequest, MessagesApi, MessagesRequest
from agentgym_jax.serving.requests import Generation, OnTokens, Pending, RequestError, answer_name
from agentgym_jax.serving.responses_api import ResponsesApi, ResponsesRequest
from agentgym_jax.serving.service import Service
from agentgym_jax.serving.text_scores import TokenScores

_EPISODE = "/episodes/{episode}"  # prefix of the routes of one episode
# Kinds of the bodies by route.
_KINDS: dict[str, type[wire.Body]] = {
    "/v1/chat/completions": wire.ChatRequest,
    "/v1/completions": wire.CompletionRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountRequest,
    "/v1/responses": ResponsesRequest,
    "/inference/v1/generate": wire.GenerateRequest,
}


def make_app(backend: Backend, *, token: str = "", routes: Sequence[Route] = ()) -> ASGIApp:
    """Returns the application; with `token`, requests need it as bearer token.

    `routes` are served in addition.
    """
    service = Service(backend)
    served = _Served(service)
    messages, responses = MessagesApi(service), ResponsesApi(service)
    handlers = {
        wire.ChatRequest: served.chat,
        wire.CompletionRequest: served.complete,
        MessagesRequest: messages.create,
        CountRequest: messages.count,
        ResponsesRequest: responses.create,
        wire.GenerateRequest: served.generate,
    }
    own = [
        Route("/health", served.health),
        Route("/metrics", served.metrics),
        Route("/openapi.json", served.openapi),
    ]
    for prefix in ("", _EPISODE):
        own += [
            Route(f"{prefix}/v1/models", served.models),
            Route(f"{prefix}/v1/models/{{name:path}}", served.model),
        ]
        own += [
            Route(f"{prefix}{path}", handlers[kind], methods=["POST"])
            for path, kind in _KINDS.items()
        ]
    served_routes = [*own, *routes]
    app = Starlette(routes=served_routes, exception_handlers=HANDLERS)
    app.state.body_bytes = 0  # of the bodies that are being read
    return Guard(app, token, served_routes, service.registry)


class _Served:
    """Handlers of the routes that are not those of another API."""

    def __init__(self, service: Service):
        self._service = service
        self._backend = service.backend

    async def health(self, request: Request) -> Response:
        running, waiting = self._backend.load()
        return JSONResponse({"status": "ok", "running": running, "waiting": waiting})

    async def metrics(self, request: Request) -> Response:
        text = prometheus_client.generate_latest(self._service.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(replies.openapi(_KINDS))

    async def models(self, request: Request) -> Response:
        self._service.chat(request)
        return JSONResponse({"object": "list", "data": [self._describe_model()]})

    async def model(self, request: Request) -> Response:
        self._service.chat(request)
        name = request.path_params["name"]
        if name != self._backend.model_name:
            message = (
                f"there is no model {name[:100]!r}; this server has {self._backend.model_name!r}"
            )
            error = error_body(message, "not_found_error", "model_not_found", "model")
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
        service = self._service
        chat, body, messages, tools = await service.read_chat(request, wire.ChatRequest)
        reply = replies.Reply("chat.completion", self._backend.model_name)
        form, decode = self._backend.answer_form.for_tools(tools), self._backend.tokenizer.decode

        def submit(number: int, on_tokens: OnTokens | None) -> Pending:
            return chat.submit_chat(messages, tools, body.sampling(number, reply.id), on_tokens)

        def choice(number: int, result: Generation) -> dict[str, Any]:
            parts = form.read(result.text, has_tools=body.may_call)
            ids = replies.call_ids(result, number, parts.calls)
            return {
                "index": number,
                "message": replies.assistant_message(parts, ids),
                "finish_reason": "tool_calls" if parts.calls else result.finish_reason,
                "logprobs": self._logprobs(result, lambda token: decode([token]))
                if body.logprobs
                else None,
                **body.ids(result),
            }

        if body.stream:
            format_ = streams.ChatFormat(reply, decode, body, choice, form, has_tools=body.may_call)
            return await service.stream(request, submit, body.n, format_)
        results = await service.wait(request, submit, body.n)

        def write() -> Response:
            choices = [choice(i, result) for i, result in enumerate(results)]
            content = reply.whole(choices, results, body.n)
            if body.return_token_ids:
                content["prompt_token_ids"] = results[0].prompt_ids.tolist()
            return JSONResponse(content)

        return await service.run(write)

    async def complete(self, request: Request) -> Response:
        raw, chat = await read_body(request), self._service.chat(request)

        def read() -> tuple[wire.CompletionRequest, list[list[int]]]:
            body: wire.CompletionRequest = self._service.parse(wire.CompletionRequest, raw)
            prompts = body.prompts()
            if len(prompts) * body.n > wire.MAX_CHOICES:
                raise RequestError(
                    f"{len(prompts)} prompts with n={body.n}: at most {wire.MAX_CHOICES} choices",
                    param="prompt",
                )
            self._service.check_size([p for p in prompts if isinstance(p, str)])
            ids = [self._backend.tokenizer.encode(p) if isinstance(p, str) else p for p in prompts]
            self._service.check_ids(ids, "prompt")
            return body, ids

        body, ids = await self._service.run(read)
        reply = replies.Reply("text_completion", self._backend.model_name)

        def submit(number: int, on_tokens: OnTokens | None) -> Pending:
            prompt = ids[number // body.n]
            own = dataclasses.replace(
                body.sampling(number % body.n), name=answer_name(reply.id, number)
            )
            return chat.submit_tokens(prompt, own, on_tokens)

        scores: list[TokenScores] = []  # of the prompts, if they are part of the answer
        if body.echo and body.logprobs is not None:
            futures = await self._service.run(lambda: [self._backend.score(p) for p in ids])
            scores = await asyncio.gather(*map(asyncio.wrap_future, futures))

        def choice(number: int, result: Generation) -> dict[str, Any]:
            prompt = number // body.n
            logprobs = None
            if body.logprobs is not None:
                logprobs = replies.text_logprobs(
                    self._backend.tokenizer.decode, result, scores[prompt] if scores else None
                )
            echoed = self._backend.tokenizer.decode(ids[prompt]) if body.echo else ""
            return {
                "index": number,
                "text": echoed + result.text,
                "finish_reason": result.finish_reason,
                "logprobs": logprobs,
                **body.ids(result),
            }

        count = len(ids) * body.n
        if body.stream:
            format_ = streams.TextFormat(
                reply, self._backend.tokenizer.decode, body, choice, AnswerForm()
            )
            return await self._service.stream(request, submit, count, format_)
        if body.max_tokens == 0:
            results = [Generation.empty(ids[i // body.n]) for i in range(count)]
        else:
            results = await self._service.wait(request, submit, count)

        def write() -> Response:
            choices = [choice(i, result) for i, result in enumerate(results)]
            return JSONResponse(reply.whole(choices, results, body.n))

        return await self._service.run(write)

    async def generate(self, request: Request) -> Response:
        raw, chat = await read_body(request), self._service.chat(request)
        body: wire.GenerateRequest = await self._service.run(
            self._service.parse, wire.GenerateRequest, raw
        )
        self._service.check_ids([body.token_ids], "token_ids")
        options = body.sampling_params
        name = f"gen-{uuid.uuid4().hex}"

        def submit(number: int, on_tokens: OnTokens | None) -> Pending:
            return chat.submit_tokens(body.token_ids, options.sampling(number, name), on_tokens)

        results = await self._service.wait(request, submit, options.n)
        choices = [
            {
                "index": i,
                "token_ids": result.token_ids.tolist(),
                "logprobs": self._logprobs(result, "token_id:{}".format),
                "finish_reason": result.finish_reason,
            }
            for i, result in enumerate(results)
        ]
        return JSONResponse(
            {
                "request_id": name,
                "choices": choices,
                "prompt_token_ids": body.token_ids,
                "usage": replies.usage(results, options.n),
            }
        )

    def _logprobs(self, result: Generation, name: Callable[[int], str]) -> dict[str, Any]:
        """Returns the log-probabilities of the sampled tokens, which `name` names."""
        ids, token_bytes = result.token_ids.tolist(), self._backend.tokenizer.token_bytes
        return replies.token_logprobs(result, map(name, ids), map(token_bytes, ids))
