"""HTTP server of one environment: AgentGym's routes, plus /spec, /health and typed errors."""

import contextlib
import dataclasses
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import anyio.to_thread
import fastapi
import fastapi.exceptions
from fastapi import Body
from starlette.requests import Request
from starlette.responses import Response

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.kind import EnvironmentKind, IdBody, StepBody
from agentgym_envs.base.limits import BearerToken, BodyLimit
from agentgym_envs.base.protocol import STATUS, ErrorKind
from agentgym_envs.base.sessions import Session, SessionStore

_LOGGER = logging.getLogger(__name__)

# Handlers that run at once. Requests that wait for a busy session each hold one.
_THREADS = 64
# Longer actions are refused with 422: the longest sensible one has some hundred characters.
MAX_ACTION_CHARACTERS = 10_000
_LONGEST_SWEEP_PERIOD = 30.0  # seconds


class JsonAnswer(Response):
    """JSON in UTF-8 without NaN, whatever text it has to carry."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Compact; half a surrogate pair, which UTF-8 cannot write, becomes its JSON escape."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


class Handlers:
    """What the routes do: find the session, ask the environment, shape the answer.

    Args:
      kind: the environment.
      store: its sessions.
      compat: answer as AgentGym's server: errors with status 200, its rules after the end.
    """

    def __init__(self, kind: EnvironmentKind, store: SessionStore, compat: bool):
        self._kind = kind
        self._store = store
        self._started = time.monotonic()
        self._refused_when_done = kind.compat_refused_when_done if compat else frozenset({"step"})
        # AgentGym's own rule for an index outside the tasks is in the compat environment.
        self._check_task = (lambda data_idx: None) if compat else self._refuse_unknown_task

    def banner(self) -> Any:
        """GET /."""
        return self._kind.banner

    def spec(self) -> Any:
        """GET /spec."""
        return dataclasses.asdict(self._kind.spec)

    def tasks(self) -> Any:
        """GET /tasks."""
        return list(self._kind.tasks())

    def health(self) -> Any:
        """GET /health."""
        return {
            "status": "ok",
            "sessions": len(self._store),
            "capacity": self._store.capacity,
            "uptime_s": round(time.monotonic() - self._started, 3),
        }

    def create(self) -> Any:
        """POST /create."""
        with self._store.create() as session:
            if self._kind.resets_on_create:
                first_task = session.id % self._kind.spec.num_tasks
                with self._guard(session):
                    session.last = session.environment.reset(first_task)
            return self._kind.answers.create(session.id, session.last)

    def reset(self, session_id: int, data_idx: int | None) -> Any:
        """POST /reset."""
        if data_idx is None:
            raise EnvironmentFault(
                ErrorKind.INVALID_REQUEST,
                "data_idx is null. Send an integer, or leave the field out for task 0.",
                compat_message="unsupported operand type(s) for %: 'NoneType' and 'int'",
            )
        with self._store.use(session_id) as session:
            self._check_task(data_idx)
            with self._guard(session):
                session.last = session.environment.reset(data_idx)
            return self._kind.answers.reset(session.id, session.last)

    def step(self, session_id: int, action: str) -> Any:
        """POST /step."""
        if len(action) > MAX_ACTION_CHARACTERS:
            raise EnvironmentFault(
                ErrorKind.INVALID_REQUEST,
                f"the action has {len(action)} characters, at most {MAX_ACTION_CHARACTERS} are "
                "accepted. Send the action alone, not the whole reply of the model.",
            )
        with self._playing(session_id, "step") as session:
            session.last = session.environment.step(action)
            return self._kind.answers.step(session.last)

    def observation(self, session_id: int) -> Any:
        """GET /observation."""
        with self._store.use(session_id) as session:
            self._check_not_done(session, "observation")
            return self._kind.answers.observation(session.environment, session.last)

    def detail(self, session_id: int) -> Any:
        """GET /detail."""
        assert self._kind.answers.detail is not None  # else the route does not exist
        with self._store.use(session_id) as session:
            return self._kind.answers.detail(session.environment, session.last)

    def expert_action(self, session_id: int) -> Any:
        """GET /expert_action."""
        with self._playing(session_id, "step") as session:
            return {"action": session.environment.expert_action()}

    def valid_actions(self, session_id: int) -> Any:
        """GET /valid_actions."""
        with self._playing(session_id, "step") as session:
            return {"actions": session.environment.valid_actions()}

    def state(self, session_id: int) -> Any:
        """GET /state."""
        with self._playing(session_id, "state") as session:
            return session.environment.state()

    def extra(self, session_id: int, name: str, answer: Callable[[Any], Any]) -> Any:
        """A route of this environment alone."""
        with self._playing(session_id, name) as session:
            return answer(session.environment)

    def close(self, session_id: int) -> Any:
        """POST /close: false for an id that is not there, so that closing twice is harmless."""
        return self._store.close(session_id)

    @contextlib.contextmanager
    def _playing(self, session_id: int, route: str) -> Iterator[Session]:
        """A session that was reset and, where the route needs it, is not done."""
        with self._store.use(session_id) as session:
            if session.last is None:
                raise EnvironmentFault(
                    ErrorKind.NOT_RESET,
                    f"session {session_id} was never reset. POST /reset first.",
                    compat_message="0",
                )
            self._check_not_done(session, route)
            with self._guard(session):
                yield session

    @contextlib.contextmanager
    def _guard(self, session: Session) -> Iterator[None]:
        """Turns a crash of the simulator into a typed error and gives the session up."""
        try:
            yield
        except EnvironmentFault:
            raise
        except Exception as error:
            _LOGGER.exception("the simulator of session %d failed", session.id)
            self._store.discard(session)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"the simulator of session {session.id} failed with {type(error).__name__}: "
                f"{error}. The session is closed; create a new one.",
            ) from error

    def _check_not_done(self, session: Session, route: str) -> None:
        if route in self._refused_when_done and session.last is not None and session.last.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED,
                f"the episode of session {session.id} is over. POST /reset to start another.",
                compat_message=f"The task with environment {session.id} has finished.",
            )

    def _refuse_unknown_task(self, data_idx: int) -> None:
        if not 0 <= data_idx < self._kind.spec.num_tasks:
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"{self._kind.spec.name} has tasks 0 .. {self._kind.spec.num_tasks - 1}, "
                f"data_idx was {data_idx}",
            )


def create_app(
    kind: EnvironmentKind,
    *,
    compat: bool,
    capacity: int,
    idle_seconds: float,
    max_body_bytes: int,
    step_timeout_s: float,
    token: str | None = None,
) -> fastapi.FastAPI:
    """The ASGI application that serves one environment.

    Args:
      kind: the environment.
      compat: behave as AgentGym's own server: errors as status 200 `{"error": text}`, its
        scoring oddities, FastAPI's 422 bodies.
      capacity: sessions alive at once.
      idle_seconds: sessions unused for longer are closed.
      max_body_bytes: longest accepted request body.
      step_timeout_s: seconds a request waits for a session that another request is using.
        A simulator inside this process cannot be interrupted, so there is no limit on that.
      token: if given, every request must carry it as bearer token.
    """
    factory = kind.compat_factory if compat else kind.factory
    store = SessionStore(
        factory, capacity=capacity, idle_seconds=idle_seconds, wait_seconds=step_timeout_s
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        store.start_sweeping(min(idle_seconds / 4, _LONGEST_SWEEP_PERIOD))
        yield
        store.stop_sweeping()
        store.close_all()

    app = fastapi.FastAPI(
        title=f"agentgym_envs {kind.spec.name}",
        version=kind.spec.version,
        lifespan=lifespan,
        default_response_class=JsonAnswer,
    )
    app.state.store = store
    _add_routes(app, kind, Handlers(kind, store, compat))
    if compat:
        _add_compat_errors(app)
    else:
        _add_typed_errors(app)
    app.add_middleware(BodyLimit, max_body_bytes=max_body_bytes)
    if token is not None:
        app.add_middleware(BearerToken, token=token)
    return app


def _add_routes(app: fastapi.FastAPI, kind: EnvironmentKind, handlers: Handlers) -> None:
    """Connects paths and bodies to the handlers. `def` handlers run on the thread pool."""

    def get(path: str, handler: Callable[[], Any]) -> None:
        app.add_api_route(path, lambda: JsonAnswer(handler()), methods=["GET"], response_model=None)

    def get_of_session(path: str, handler: Callable[[int], Any]) -> None:
        def route(id: int) -> Response:
            return JsonAnswer(handler(id))

        app.add_api_route(path, route, methods=["GET"], response_model=None)

    def post(path: str, handler: Callable[[Any], Any], body: Any) -> None:
        def route(request):
            return JsonAnswer(handler(request))

        # FastAPI reads the type of a body from the annotation, and this one is a value.
        route.__annotations__ = {"request": Annotated[body, Body()], "return": Response}
        app.add_api_route(path, route, methods=["POST"], response_model=None)

    get("/", handlers.banner)
    get("/spec", handlers.spec)
    get("/health", handlers.health)
    get("/tasks", handlers.tasks)
    if kind.create_body is None:
        app.add_api_route(
            "/create", lambda: JsonAnswer(handlers.create()), methods=["POST"], response_model=None
        )
    else:
        post("/create", lambda body: handlers.create(), kind.create_body)
    post("/reset", lambda body: handlers.reset(body.id, body.data_idx), kind.reset_body)
    post("/step", lambda body: handlers.step(body.id, body.action), StepBody)
    post("/close", lambda body: handlers.close(body.id), IdBody)
    get_of_session("/observation", handlers.observation)
    if kind.answers.detail is not None:
        get_of_session("/detail", handlers.detail)
    get_of_session("/expert_action", handlers.expert_action)
    get_of_session("/valid_actions", handlers.valid_actions)
    get_of_session("/state", handlers.state)
    for extra in kind.extra_routes:
        _add_extra_route(get_of_session, post, handlers, extra)


def _add_extra_route(get_of_session, post, handlers, extra) -> None:
    name = extra.path.removeprefix("/")
    if extra.method == "GET":
        get_of_session(
            extra.path, lambda session_id: handlers.extra(session_id, name, extra.answer)
        )
    elif extra.method == "POST":
        post(extra.path, lambda body: handlers.extra(body.id, name, extra.answer), IdBody)
    else:
        raise ValueError(
            f"extra route {extra.path}: method must be GET or POST, not {extra.method}"
        )


def _add_typed_errors(app: fastapi.FastAPI) -> None:
    """Errors as status 4xx/5xx with `{"error": message, "type": kind}`."""

    @app.exception_handler(EnvironmentFault)
    def fault(request: Request, error: EnvironmentFault) -> Response:
        return _typed(error.kind, error.message)

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    def invalid(request: Request, error: fastapi.exceptions.RequestValidationError) -> Response:
        found = "; ".join(
            f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()
        )
        return _typed(ErrorKind.INVALID_REQUEST, f"{request.url.path}: {found}")

    @app.exception_handler(400)
    def unreadable(request: Request, error: Exception) -> Response:
        return _typed(
            ErrorKind.INVALID_REQUEST, f"{request.url.path}: the body is not JSON in UTF-8"
        )


def _add_compat_errors(app: fastapi.FastAPI) -> None:
    """AgentGym's form: status 200 `{"error": text}`; FastAPI's own body for status 422."""

    @app.exception_handler(EnvironmentFault)
    def fault(request: Request, error: EnvironmentFault) -> Response:
        return JsonAnswer({"error": error.compat_message})

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    def invalid(request: Request, error: fastapi.exceptions.RequestValidationError) -> Response:
        keys = ("type", "loc", "msg", "input")
        detail = [{k: _plain(e[k]) for k in keys if k in e} for e in error.errors()]
        return JsonAnswer({"detail": detail}, status_code=422)


def _typed(kind: ErrorKind, message: str) -> Response:
    return JsonAnswer({"error": message, "type": str(kind)}, status_code=STATUS[kind])


def _plain(value: Any) -> Any:
    """A JSON value for what a request contained, which may be NaN or infinite."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
