"""HTTP application of Tinker's API: routes below /api/v1, as SDK 0.38 calls them.

A call that takes time is answered with the name of its result, a `request_id`, which the client passes
to retrieve_future until the result is there. Names are derived from the numbers of the client, so a
call that is sent again after a lost connection is not run twice.
"""

import asyncio
import contextlib
import functools
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import prometheus_client
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agentgym_jax.serving.bodies import read_body
from agentgym_jax.serving.error_answers import HANDLERS, error_response
from agentgym_jax.serving.guard import Guard
from agentgym_jax.serving.requests import NotServingError, RequestError
from agentgym_jax.training_api import tinker_wire
from agentgym_jax.training_api.futures import Future, Result
from agentgym_jax.training_api.sampling import CANCELLED
from agentgym_jax.training_api.saved import WEIGHTS, SavedPath
from agentgym_jax.training_api.training_service import Service, sample_name

POLL_S = 30.0  # time that retrieve_future waits for a result, in seconds; the SDK waits 45
_PROTOBUF = "application/x-protobuf"
_PREFIX = "/api/v1"
_NOT_FOUND = "not_found"
Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service, *, token: str = "") -> ASGIApp:
    """Returns the application; with `token`, requests need it as `X-API-Key` or bearer token."""
    served = _Served(service)
    post: dict[str, Handler] = {
        "client/config": served.config,
        "client/dynamic_config": served.config,
        "create_session": served.create_session,
        "session_heartbeat": served.heartbeat,
        "sessions/{session}/finish": served.finish_session,
        "telemetry": served.telemetry,
        "create_model": served.create_model,
        "get_info": served.get_info,
        "unload_model": served.unload_model,
        "forward_backward": served.forward_backward,
        "optim_step": served.optim_step,
        "save_weights": served.save_weights,
        "load_weights": served.load_weights,
        "save_weights_for_sampler": served.save_for_sampler,
        "weights_info": served.weights_info,
        "create_sampling_session": served.create_sampler,
        "asample": served.sample,
        "retrieve_future": served.retrieve,
        "cancel_future": served.cancel,
    }
    get: dict[str, Handler] = {
        "healthz": served.health,
        "get_server_capabilities": served.capabilities,
        "samplers/{sampler:path}": served.describe_sampler,
        "training_runs/{run}": served.describe_run,
    }
    routes = [
        *(Route(f"{_PREFIX}/{path}", handler, methods=["POST"]) for path, handler in post.items()),
        *(Route(f"{_PREFIX}/{path}", handler) for path, handler in get.items()),
        Route("/health", served.health),
    ]
    handlers = HANDLERS | {404: _answer_unknown_route, RequestError: _answer_request_error}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.body_bytes = 0  # of the bodies that are being read
    return Guard(app, token, routes, prometheus_client.CollectorRegistry())


async def _answer_unknown_route(request: Request, error: Exception) -> Response:
    message = f"there is no route {request.scope['path'][:200]}; {tinker_wire.REMEDY}"
    return error_response(request.scope["path"], 404, message, "not_found_error", "unknown_url")


async def _answer_request_error(request: Request, error: Any) -> Response:
    if error.code == _NOT_FOUND:
        kind = "not_found_error"
        return error_response(request.scope["path"], 404, str(error), kind, error.code, error.param)
    return await HANDLERS[RequestError](request, error)


class _Served:
    """Handlers of the routes."""

    def __init__(self, service: Service):
        self._service = service

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def capabilities(self, request: Request) -> Response:
        backend = self._service.backend
        model = {
            "model_name": backend.name,
            "max_context_length": backend.sampler.context,
            "trainable": True,
            "sampleable": True,
        }
        return JSONResponse({"supported_models": [model]})

    async def config(self, request: Request) -> Response:
        await read_body(request)
        # Other settings have the SDK's defaults.
        off = ("pjwt_auth_enabled", "proto_compress_fwdbwd", "sample_use_retrieve_futures")
        flags = dict.fromkeys((*off, "custom_loss_server_side"), False)
        return JSONResponse(flags | {"sample_cancel_enabled": True})

    async def telemetry(self, request: Request) -> Response:
        await read_body(request)  # nothing is kept
        return JSONResponse({"status": "accepted"})

    async def create_session(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.SessionRequest)
        answer = {"type": "create_session", "session_id": self._service.open_session()}
        if not body.sdk_version.startswith(f"{tinker_wire.SDK}."):
            answer["warning_message"] = (
                f"tinker {body.sdk_version[:50]} may speak another wire than this server: {tinker_wire.REMEDY}"
            )
        return JSONResponse(answer)

    async def heartbeat(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.HeartbeatRequest)
        self._service.beat(body.session_id)
        return JSONResponse({"type": "session_heartbeat"})

    async def finish_session(self, request: Request) -> Response:
        await read_body(request)
        self._service.close_session(request.path_params["session"])
        return JSONResponse({})

    async def create_model(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.CreateModelRequest)
        name = f"{body.session_id}:train:{body.model_seq_id}:create"
        start = functools.partial(self._service.create_model, body)
        return JSONResponse(await self._start(name, body, start))

    async def get_info(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.ModelRequest)
        return JSONResponse(self._service.describe(body.model_id))

    async def unload_model(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.ModelRequest)

        def unload(future: Future[Result]) -> None:
            future.set_result(self._service.unload(body.model_id))

        return JSONResponse(await self._start(f"{body.model_id}:unload", body, unload))

    async def forward_backward(self, request: Request) -> Response:
        raw = await read_body(request)
        if request.headers.get("content-type", "") != _PROTOBUF:
            raise RequestError(
                f"forward_backward must be {_PROTOBUF}, which SDKs before 0.25 do not send; "
                f"{tinker_wire.REMEDY}",
                "wrong_wire",
            )
        if "content-encoding" in request.headers:
            raise RequestError("the body is compressed; send it as it is", "wrong_wire")
        message = await run_in_threadpool(tinker_wire.read_message, raw)
        name, digest = f"{message.model_id}:{message.seq_id}", hashlib.sha256(raw).digest()
        with self._skipping(message.model_id, message.seq_id):
            body = await run_in_threadpool(tinker_wire.ForwardBackward, message)
            start = functools.partial(self._service.forward_backward, body)
            return JSONResponse(await self._claim(name, digest, start))

    async def optim_step(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.OptimStepRequest)
        return await self._call(body, self._service.optim_step)

    async def save_weights(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.SaveRequest)
        return await self._call(body, self._service.save)

    async def save_for_sampler(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.SaveForSamplerRequest)
        return await self._call(body, self._service.save_for_sampler)

    async def load_weights(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.LoadRequest)
        if body.model_id is not None:
            return await self._call(body, self._service.load)
        name = f"{body.session_id}:train:{body.model_seq_id}:create"
        start = functools.partial(self._service.create_from_state, body)
        return JSONResponse(await self._start(name, body, start))

    async def weights_info(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.PathRequest)
        path = SavedPath.parse(body.tinker_path, WEIGHTS)
        facts = await run_in_threadpool(self._service.backend.saved.describe, path)
        return JSONResponse(
            {
                "base_model": self._service.backend.name,
                "is_lora": True,
                "lora_rank": facts["rank"],
                "train_unembed": False,
                "train_mlp": "up" in facts["targets"],
                "train_attn": "q" in facts["targets"],
            }
        )

    async def create_sampler(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.SamplingSessionRequest)
        name = await run_in_threadpool(self._service.create_sampler, body)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": name})

    async def describe_sampler(self, request: Request) -> Response:
        sampling = self._service.sampler(request.path_params["sampler"])
        return JSONResponse(
            {
                "sampler_id": sampling.name,
                "base_model": self._service.backend.name,
                "model_path": sampling.path,
            }
        )

    async def describe_run(self, request: Request) -> Response:
        info = self._service.describe(request.path_params["run"])
        return JSONResponse(
            {
                "training_run_id": info["model_id"],
                "base_model": info["model_name"],
                "model_owner": "local",
                "is_lora": True,
                "lora_rank": info["lora_rank"],
                "last_request_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
        )

    async def sample(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.SampleRequest)
        if body.sampling_session_id is None or body.seq_id is None:
            raise RequestError(
                "asample needs sampling_session_id and seq_id: create a sampling client first",
                "out_of_order",
                "sampling_session_id",
            )
        name = sample_name(body)
        answer = await self._start(name, body, functools.partial(self._service.sample, body))
        ids = [f"{name}/{i}" for i in range(body.num_samples)]
        return JSONResponse(answer | {"sample_sequence_ids": ids})

    async def retrieve(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.RetrieveRequest)
        self._service.see(body.request_id)
        future = asyncio.wrap_future(self._service.results.find(body.request_id))
        await asyncio.wait([future], timeout=POLL_S)
        if not future.done():
            future.cancel()  # ends this wait, not the call; asyncio would log a later error
            return JSONResponse(
                {"type": "try_again", "request_id": body.request_id, "queue_state": "active"}
            )
        self._service.results.mark_fetched(body.request_id)
        try:
            result = future.result()
        except RequestError as error:
            if error.code == CANCELLED:  # the SDK samples again if the client is still there
                path, kind = request.scope["path"], "invalid_request_error"
                return error_response(path, 410, str(error), kind, CANCELLED)
            return JSONResponse({"error": str(error), "category": "user", "code": error.code})
        except NotServingError:
            raise
        except Exception as error:  # noqa: BLE001 - logged where it occurred
            return JSONResponse({"error": f"the server failed: {error}", "category": "server"})
        if isinstance(result, dict):
            return JSONResponse(result)
        if _PROTOBUF not in request.headers.get("accept", ""):
            raise RequestError(f"this result is {_PROTOBUF}; {tinker_wire.REMEDY}", "wrong_wire")
        return Response(result, media_type=_PROTOBUF)

    async def cancel(self, request: Request) -> Response:
        body = await self._read(request, tinker_wire.CancelRequest)
        await run_in_threadpool(self._service.cancel, body.request_id)
        return JSONResponse({})

    async def _read(self, request: Request, kind: type[tinker_wire.Request]) -> Any:
        raw = await read_body(request)
        try:
            return await run_in_threadpool(tinker_wire.parse, kind, raw)
        except RequestError:
            self._service.skip(*tinker_wire.read_number(raw))
            raise

    async def _call(self, body: Any, submit: Callable[[Any, Any], None]) -> Response:
        """Starts a call of the model in training."""
        name = f"{body.model_id}:{body.seq_id}"
        with self._skipping(body.model_id, body.seq_id):
            return JSONResponse(await self._start(name, body, functools.partial(submit, body)))

    @contextlib.contextmanager
    def _skipping(self, model: str | None, number: int | None) -> Iterator[None]:
        """If the block refuses a call, those after it do not wait for it."""
        try:
            yield
        except RequestError:
            self._service.skip(model, number)
            raise

    async def _start(self, name: str, body: Any, start: Callable[[Any], Any]) -> dict[str, Any]:
        digest = hashlib.sha256(f"{type(body).__name__} {body.model_dump_json()}".encode()).digest()
        return await self._claim(name, digest, start)

    async def _claim(self, name: str, digest: bytes, start: Callable[[Any], Any]) -> dict[str, Any]:
        """Starts a call unless it is a repetition; returns the body of the answer."""
        results = self._service.results

        def claim() -> None:
            future, is_new = results.claim(name, digest)
            if not is_new:
                return
            try:
                start(future)
            except Exception:
                results.forget(name)
                raise

        await run_in_threadpool(claim)
        return {"request_id": name}
