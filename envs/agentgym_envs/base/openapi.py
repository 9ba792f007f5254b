"""The OpenAPI description of a server, generated from its routes."""

from collections.abc import Iterable
from typing import Any

from agentgym_envs.base.protocol import STATUS, ErrorKind
from agentgym_envs.base.routes import SessionRoute
from agentgym_envs.base.served import EmptyBody, ServedEnvironment

_ERROR = {
    "type": "object",
    "required": ["error", "type"],
    "properties": {
        "error": {"type": "string"},
        "type": {"type": "string", "enum": [str(served) for served in ErrorKind]},
    },
}


def describe(
    served: ServedEnvironment, routes: Iterable[SessionRoute], facts: Iterable[str]
) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document. It describes errors as sent without `--compat`."""
    prefix = served.path_prefix
    paths: dict[str, Any] = {path: {"get": _operation("Facts about the server.")} for path in facts}
    create = _operation("Opens a session.")
    if served.create_body is not None:
        create["requestBody"] = _body(EmptyBody)
    paths[f"{prefix}/create"] = {"post": create}
    paths[f"{prefix}/close"] = {
        "post": _operation("Ends a session.") | {"requestBody": _body(served.session_body)}
    }
    for route in routes:
        operation = _operation(route.summary)
        if route.method == "GET":
            operation["parameters"] = [
                {
                    "name": served.session_field,
                    "in": "query",
                    "required": True,
                    "schema": {"type": "integer"},
                }
            ]
        else:
            operation["requestBody"] = _body(route.body)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": f"agentgym_envs {served.spec.name}", "version": served.spec.version},
        "paths": paths,
    }


def _operation(summary: str) -> dict[str, Any]:
    error = {"description": "A typed error.", "content": {"application/json": {"schema": _ERROR}}}
    statuses = sorted({str(status) for status in STATUS.values()})
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {"schema": {}}}},
            **{status: error for status in statuses},
        },
    }


def _body(model: Any) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"required": True, "content": {"application/json": {"schema": schema}}}
