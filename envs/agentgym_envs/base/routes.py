"""The routes of a server as data: where a request about a session stands, and what it means."""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import pydantic

from agentgym_envs.base.application import Request
from agentgym_envs.base.kind import EnvironmentKind, SessionBody


@dataclasses.dataclass(frozen=True)
class SessionRoute:
    """A route about one session.

    Attributes:
      path: with the prefix of its kind.
      method: `GET` (session in the query) or `POST` (JSON body).
      operation: what `SessionHost.answer` is asked.
      body: what the request must contain; its `session` is the session.
      argument: from the body to the argument of the operation.
      is_stateful: the operation changes the session.
      summary: one line for the description of the server.
    """

    path: str
    method: str
    operation: str
    body: type[SessionBody]
    argument: Callable[[Any], Any]
    is_stateful: bool
    summary: str


def session_routes(kind: EnvironmentKind) -> list[SessionRoute]:
    """All of them but `/create` and `/close`, which only the holder of the sessions can serve."""
    prefix = kind.path_prefix
    routes = [
        SessionRoute(
            f"{prefix}/step", "POST", "step", kind.step_body, _action, True, "Applies one action."
        ),
        SessionRoute(
            f"{prefix}/reset",
            "POST",
            "reset",
            kind.reset_body,
            lambda body: getattr(body, kind.task_field),
            True,
            "Starts a task.",
        ),
    ]
    for step in kind.step_routes:
        routes.append(
            SessionRoute(
                prefix + step.path,
                "POST",
                step.path,
                kind.step_body,
                _action,
                True,
                "Applies one action; another answer than /step.",
            )
        )
    for extra in kind.extra_routes:
        if extra.method not in ("GET", "POST"):
            raise ValueError(
                f"extra route {extra.path}: method must be GET or POST, not {extra.method}"
            )
        summary = f"Only {kind.spec.name} has this."
        routes.append(_reader(kind, extra.method, extra.path, extra.path, summary))
    known = {route.path for route in routes}
    for name, summary in _READERS.items():
        if prefix + name not in known and (name != "/detail" or kind.answers.detail is not None):
            routes.append(_reader(kind, "GET", name, name.removeprefix("/"), summary))
    return routes


_READERS = {
    "/observation": "The last observation.",
    "/detail": "The last answer.",
    "/expert_action": "What the scripted player would do now.",
    "/valid_actions": "Actions that do something now.",
    "/state": "Facts for viewers.",
}


def _reader(
    kind: EnvironmentKind, method: str, path: str, operation: str, summary: str
) -> SessionRoute:
    path = kind.path_prefix + path
    return SessionRoute(
        path, method, operation, kind.session_body, lambda body: None, False, summary
    )


def _action(body: Any) -> str:
    return body.action


def facts(kind: EnvironmentKind, compat: bool) -> dict[str, Callable[[], Any]]:
    """Path -> body of the answer, for the GET routes that are about no session."""
    # Results of AgentGym's rules must not pass for results of ours.
    version = f"{kind.spec.version}-compat" if compat else kind.spec.version
    return {
        "/": lambda: kind.banner,
        "/spec": lambda: dataclasses.asdict(kind.spec) | {"version": version},
        "/tasks": lambda: list(kind.tasks()),
        **{path: functools.partial(kind.facts.__getitem__, path) for path in kind.facts},
    }


class RequestProblem(Exception):
    """A request does not fit its route.

    Attributes:
      problems: in pydantic's form: `type`, `loc`, `msg`, `input`.
    """

    def __init__(self, problems: list[dict[str, Any]]):
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in self.problems)


def read(model: type[pydantic.BaseModel], values: Any, where: str) -> Any:
    """Checks the values of a body or a query.

    Args:
      model: what is expected.
      values: what came; the name of a missing or unreadable body is in the error.
      where: `body` or `query`.

    Raises:
      RequestProblem: they do not fit.
    """
    try:
        return model.model_validate(values, from_attributes=True)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise RequestProblem(
            [{**problem, "loc": (where, *problem["loc"])} for problem in found]
        ) from None


def json_body(request: Request) -> Any:
    """Returns the JSON value of a body.

    Only a body that is declared as JSON is read: a browser lets a page send any other content
    type, or none, to a server on loopback without asking that server first.

    Raises:
      RequestProblem: The request has no body, another content type, or no JSON in its body.
    """
    if not request.body:
        raise RequestProblem(
            [{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}]
        )
    media_type = request.content_type.partition(b";")[0].strip()
    if media_type != b"application/json" and not media_type.endswith(b"+json"):
        found = repr(media_type.decode("latin-1")) if media_type else "missing"
        problem = f"the content type is {found}, expected application/json"
        raise RequestProblem(
            [{"type": "model_attributes_type", "loc": ("body",), "msg": problem, "input": None}]
        )
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError) as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise RequestProblem(
            [
                {
                    "type": "json_invalid",
                    "loc": ("body", position),
                    "msg": f"the body is not JSON in UTF-8 ({error})",
                    "input": {},
                }
            ]
        ) from None
