"""Routes of a server as data: the operation of each route, and the place of the session id."""

import dataclasses
import functools
import json
import operator
from collections.abc import Callable
from typing import Any

import pydantic

from agentgym_envs.base.application import Request
from agentgym_envs.base.served import ServedEnvironment, SessionBody


@dataclasses.dataclass(frozen=True)
class SessionRoute:
    """A route for requests about one session.

    Attributes:
      path: Path of the route, with the prefix of the environment.
      method: `GET` (session in the query) or `POST` (session in the JSON body).
      operation: Operation for `SessionHost.answer`.
      body: Model of the request's content; its property `session` is the session id.
      argument: Function that extracts the operation's argument from the content.
      is_stateful: True if the operation changes the session.
      summary: One-line summary for the OpenAPI description.
    """

    path: str
    method: str
    operation: str
    body: type[SessionBody]
    argument: Callable[[Any], Any]
    is_stateful: bool
    summary: str


def session_routes(served: ServedEnvironment) -> list[SessionRoute]:
    """Returns all session routes except `/create` and `/close`, which need the session store."""
    prefix = served.path_prefix

    def stateful(
        path: str, operation: str, body: type[SessionBody], field: str, summary: str
    ) -> SessionRoute:
        argument = operator.attrgetter(field)
        return SessionRoute(prefix + path, "POST", operation, body, argument, True, summary)

    def reader(method: str, path: str, operation: str, summary: str) -> SessionRoute:
        body = served.session_body
        return SessionRoute(prefix + path, method, operation, body, _nothing, False, summary)

    step_body, summary = served.step_body, "Applies one action; the answer differs from /step's."
    routes = [
        stateful("/step", "step", step_body, "action", "Applies one action."),
        stateful("/reset", "reset", served.reset_body, served.task_field, "Starts a task."),
    ]
    routes += [
        stateful(step.path, step.path, step_body, "action", summary) for step in served.step_routes
    ]
    for extra in served.extra_routes:
        if extra.method not in ("GET", "POST"):
            raise ValueError(
                f"extra route {extra.path}: method must be GET or POST, not {extra.method}"
            )
        summary = f"Only {served.spec.name} has this."
        routes.append(reader(extra.method, extra.path, extra.path, summary))
    known = {route.path for route in routes}
    for name, summary in _READERS.items():
        if prefix + name not in known and (name != "/detail" or served.answers.detail is not None):
            routes.append(reader("GET", name, name.removeprefix("/"), summary))
    return routes


_READERS = {
    "/observation": "The last observation.",
    "/detail": "The last answer.",
    "/expert_action": "What the scripted agent would do now.",
    "/valid_actions": "Actions that do something now.",
    "/state": "Facts for viewers.",
}


def _nothing(body: Any) -> None:
    """Returns None, because the operation has no argument."""


def facts(served: ServedEnvironment, compat: bool) -> dict[str, Callable[[], Any]]:
    """Returns, for each GET path without a session, the function that makes its answer."""
    # The version distinguishes results under AgentGym's rules from results under ours.
    version = f"{served.spec.version}-compat" if compat else served.spec.version
    return {
        "/": lambda: served.banner,
        "/spec": lambda: served.spec.to_json() | {"version": version},
        "/tasks": lambda: list(served.tasks()),
        **{path: functools.partial(served.facts.__getitem__, path) for path in served.facts},
    }


class RequestProblem(Exception):
    """Error for a request that does not fit its route.

    Attributes:
      problems: List of problems in pydantic's form: `type`, `loc`, `msg`, `input`.
    """

    def __init__(self, problems: list[dict[str, Any]]):
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in self.problems)


def read(model: type[pydantic.BaseModel], values: Any, where: str) -> Any:
    """Checks the values of a body or a query.

    Raises:
      RequestProblem: The values do not fit the model.
    """
    try:
        return model.model_validate(values, from_attributes=True)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise RequestProblem(
            [{**problem, "loc": (where, *problem["loc"])} for problem in found]
        ) from None


def json_body(request: Request) -> Any:
    """Parses a JSON body.

    The content type must be JSON. For JSON, a browser sends a CORS preflight before a request from
    a page of another site. For a simple content type such as text/plain, or for none, it does not.

    Raises:
      RequestProblem: The body is missing, has another content type, or is not JSON.
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
