"""Properties of a session: requests before, during and after its episodes."""

import contextlib
import http.client
import json
import os
import signal
import urllib.parse
from collections.abc import Iterator
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import MAX_ACTION_CHARACTERS, SessionHost, to_json
from agentgym_envs.base.protocol import STATUS, ErrorKind
from agentgym_envs.base.routes import SessionRoute, session_routes
from agentgym_envs.conformance.subject import (
    Change,
    NotApplicable,
    Subject,
    Transcript,
    Violation,
    shorten,
)

# nonsense actions like those of weak models
ODD_ACTIONS = (
    "",
    " \t\n ",
    "a" * MAX_ACTION_CHARACTERS,
    "get " * (MAX_ACTION_CHARACTERS // 4),
    "\n".join("look" for _ in range(1000)),
    "(" * 5000,
    "\0\x01\x07\x1b[31m\x7f\x85\u2028",
    "行动 🚪 öffnen \u202e \u0301\u0301 \U000e0041",
    "half \ud800 of a pair \udfff",
    "'; DROP TABLE tasks; -- \" \\ ${HOME} %s %n {0} {{",
    "-0",
    "9" * 400,
    "null",
    '{"action": ["a", 1, null]}',
    "<|im_end|></s>",
)
_UNKNOWN_ID = 987_654_321


def a_step_before_the_first_reset_is_refused(subject: Subject) -> None:
    """Checks that a step in a new session is refused."""
    if subject.served.resets_on_create:
        raise NotApplicable("a new session begins with a task")
    with _host(subject) as host:
        host.answer("create", 0, None)
        _expect_refusal(host, "step", "look", ErrorKind.NOT_RESET, "a step before the first reset")


def a_step_after_the_end_is_refused(subject: Subject) -> str:
    """Checks that a step after the end is refused and that a reset starts another episode."""
    if subject.compat and "step" not in subject.served.compat_refused_when_done:
        raise NotApplicable("AgentGym's server continues after the end")
    ended = [a for a in subject.attempts if a.is_done and a.actions]
    if not ended:
        raise NotApplicable("no episode of the scripted agent ended")
    for attempt in ended:
        with _host(subject) as host:
            host.answer("create", 0, None)
            host.answer("reset", 0, attempt.data_idx)
            for action in attempt.actions:
                host.answer("step", 0, action)
            where = f"task {attempt.data_idx}: a step after the end"
            _expect_refusal(host, "step", attempt.actions[-1], ErrorKind.FINISHED, where)
            host.answer("reset", 0, attempt.data_idx)
            host.answer("step", 0, attempt.actions[0])
    return f"{len(ended)} episodes that ended"


def an_unknown_task_is_refused_and_the_episode_continues(subject: Subject) -> None:
    """Checks that indices outside 0 .. num_tasks - 1 are refused and the episode continues."""
    if subject.compat:
        raise NotApplicable("AgentGym's servers have other rules")
    transcript = subject.transcripts[0]
    with _host(subject) as host:
        host.answer("create", 0, None)
        host.answer("reset", 0, transcript.data_idx)
        for data_idx in (-1, subject.served.spec.num_tasks, 10**30):
            where = f"a reset to task {data_idx}"
            _expect_refusal(host, "reset", data_idx, ErrorKind.UNKNOWN_TASK, where)
        for number, turn in enumerate(transcript.turns[:2], 1):
            found = host.answer("step", 0, turn.action)
            expected = to_json(subject.served.answers.step(turn.result))
            if found != expected:
                raise Change(
                    f"task {transcript.data_idx} after refused resets: {_shown(found)}, expected "
                    f"{_shown(expected)}",
                    (transcript.data_idx, number),
                )


def a_closed_session_is_unknown(subject: Subject) -> None:
    """Checks that a second close returns false and that a step after the close is refused."""
    with _host(subject) as host:
        host.answer("create", 0, None)
        host.answer("reset", 0, subject.indices[0])
        closed = [host.answer("close", 0, None), host.answer("close", 0, None)]
        if closed != [b"true", b"false"]:
            raise Violation(f"closing twice answers {closed}, expected true, then false")
        _expect_refusal(host, "step", "look", ErrorKind.UNKNOWN_SESSION, "a step after the close")


def every_route_answers(subject: Subject) -> str:
    """Checks that every route answers with status 200 and JSON.

    The server's spec and manifest must equal those of this process.
    """
    server, served = subject.server, subject.served
    expected = {
        "/": served.banner,
        "/tasks": [dict(task) for task in served.tasks()],
        **served.facts,
    }
    for path in (*expected, "/spec", "/health", "/openapi.json"):
        body = _ask(subject, "GET", served.path_prefix + path)
        if path in expected and body != json.loads(to_json(expected[path])):
            raise Violation(f"GET {path} answers {_shown(body)}, expected {expected[path]!r:.200}")
    found = _ask(subject, "GET", f"{served.path_prefix}/spec")
    if found["name"] != served.spec.name or found["manifest_sha256"] != served.spec.manifest_sha256:
        raise Violation(f"GET /spec answers {_shown(found)}, expected {served.spec}")
    session = _start(subject, subject.indices[0])
    routes = session_routes(served)
    for route in routes:
        if route.operation not in ("reset", "step"):
            _ask(subject, *_request(subject, route, session), may_lack=True)
    closed = {served.session_field: session}
    if server.exchange("POST", f"{served.path_prefix}/close", closed) != (200, True):
        raise Violation("POST /close did not answer true")
    return f"{len(routes)} of sessions"


def the_server_gives_the_answers_of_the_environment(subject: Subject) -> None:
    """Checks that an episode has the same answers over HTTP and in this process."""
    for transcript in subject.transcripts[:2]:
        session = _start(subject, transcript.data_idx)
        _replay(subject, session, transcript)
        _end(subject, session)


def errors_of_the_server_are_typed(subject: Subject) -> str:
    """Checks the errors for unknown sessions and for bodies that do not fit the route.

    Under compat the errors must have AgentGym's form.
    """
    routes = session_routes(subject.served)
    for route in routes:
        method, target, body = _request(subject, route, _UNKNOWN_ID)
        _expect_error(subject, method, target, body, ErrorKind.UNKNOWN_SESSION)
        if method == "POST":
            for unfit in ({}, {**(body or {}), subject.served.session_field: "a"}):
                _expect_error(subject, method, target, unfit, ErrorKind.INVALID_REQUEST)
    return f"{len(routes)} routes"


def odd_actions_neither_crash_nor_hang(subject: Subject) -> str:
    """Checks that empty, very long and odd actions get answers without a worker restart."""
    data_idx = subject.indices[0]
    session = _start(subject, data_idx)
    before = _restarts(subject)
    step = f"{subject.served.path_prefix}/step"
    for action in ODD_ACTIONS:
        where = f"task {data_idx}: the action {shorten(ascii(action))}"
        status, body = _exchange(
            subject, "POST", step, {subject.served.session_field: session, "action": action}, where
        )
        is_answer = status == 200 and not (isinstance(body, dict) and "error" in body)
        # A lone surrogate is not valid text; the server may reject it.
        if not is_answer and status != STATUS[ErrorKind.INVALID_REQUEST]:
            cause = body.get("origin", "") if isinstance(body, dict) else ""
            raise Violation(f"{where} has status {status}: {_shown(body)}", cause)
        if isinstance(body, dict) and body.get("done"):
            _end(subject, session)
            session = _start(subject, data_idx)
    _end(subject, session)
    if _restarts(subject) != before:
        raise Violation(f"task {data_idx}: an odd action ended the process")
    return f"{len(ODD_ACTIONS)} actions"


def sessions_survive_the_loss_of_a_worker(subject: Subject) -> str:
    """Checks that an episode continues with the same answers after its worker was killed."""
    pids = subject.server.worker_pids()
    if not pids:
        raise NotApplicable("the worker process is not found without /proc")
    transcript = max(subject.transcripts, key=lambda t: len(t.turns))
    if not transcript.turns:
        raise NotApplicable("no episode of the sample has an action")
    session = _start(subject, transcript.data_idx)
    half = len(transcript.turns) // 2
    for turn in transcript.turns[:half]:
        _step(subject, session, turn.action)
    for pid in pids:
        os.killpg(pid, signal.SIGKILL)  # every worker leads its own process group
    note = ", after the loss of its process"
    _replay(subject, session, transcript, half, note)
    _end(subject, session)
    return f"after {half} actions"


@contextlib.contextmanager
def _host(subject: Subject) -> Iterator[SessionHost]:
    host = SessionHost(subject.served, subject.compat)
    try:
        yield host
    except EnvironmentFault as fault:
        raise Violation(f"a session was refused: {fault.message}") from fault
    finally:
        host.close_all()


def _expect_refusal(
    host: SessionHost, operation: str, argument: Any, expected: ErrorKind, where: str
) -> None:
    try:
        found = _shown(host.answer(operation, 0, argument))
    except EnvironmentFault as fault:
        if fault.kind is expected:
            return
        found = f"the error {fault.kind}: {fault.message}"
    raise Violation(f"{where} is answered with {found}, expected the error {expected}")


def _request(
    subject: Subject, route: SessionRoute, session: int
) -> tuple[str, str, dict[str, Any] | None]:
    """Returns method, target and body of a request to a route."""
    field = subject.served.session_field
    if route.method == "GET":
        return "GET", f"{route.path}?{urllib.parse.urlencode({field: session})}", None
    return "POST", route.path, {field: session, "action": "look", subject.served.task_field: 0}


def _start(subject: Subject, data_idx: int) -> int:
    """Starts a task in a new session; returns the session id."""
    prefix, field = subject.served.path_prefix, subject.served.session_field
    # Some environments require a JSON object as the body of `/create`; its only field is `id`.
    created = _ask(subject, "POST", f"{prefix}/create", {"id": 0})
    session = created if isinstance(created, int) else created[field]
    _ask(subject, "POST", f"{prefix}/reset", {field: session, subject.served.task_field: data_idx})
    return session


def _step(subject: Subject, session: int, action: str) -> Any:
    body = {subject.served.session_field: session, "action": action}
    return _ask(subject, "POST", f"{subject.served.path_prefix}/step", body)


def _replay(
    subject: Subject, session: int, transcript: Transcript, start: int = 0, note: str = ""
) -> None:
    """Checks that the actions of a transcript from `start` on have the same answers over HTTP."""
    for number, turn in enumerate(transcript.turns[start:], start + 1):
        found = _step(subject, session, turn.action)
        expected = json.loads(to_json(subject.served.answers.step(turn.result)))
        if found != expected:
            raise Change(
                f"task {transcript.data_idx}, action {number}{note}: the server answers "
                f"{_shown(found)}, expected {_shown(expected)}",
                (transcript.data_idx, number),
            )


def _end(subject: Subject, session: int) -> None:
    body = {subject.served.session_field: session}
    _ask(subject, "POST", f"{subject.served.path_prefix}/close", body)


def _restarts(subject: Subject) -> int:
    return _ask(subject, "GET", f"{subject.served.path_prefix}/health")["worker_restarts"]


def _ask(
    subject: Subject,
    method: str,
    target: str,
    body: dict[str, Any] | None = None,
    *,
    may_lack: bool = False,
) -> Any:
    """Sends a request that must succeed; returns the body of the answer.

    With `may_lack`, the environment may refuse because it lacks an optional method.
    """
    where = f"{method} {target}"
    status, answer = _exchange(subject, method, target, body, where)
    if may_lack and status == STATUS[ErrorKind.UNSUPPORTED]:
        return answer
    if status != 200 or (isinstance(answer, dict) and "error" in answer):
        raise Violation(f"{where} has status {status}: {_shown(answer)}")
    return answer


def _expect_error(
    subject: Subject, method: str, target: str, body: dict[str, Any] | None, expected: ErrorKind
) -> None:
    where = f"{method} {target}"
    status, answer = _exchange(subject, method, target, body, where)
    is_object = isinstance(answer, dict)
    if subject.compat and expected is not ErrorKind.INVALID_REQUEST:
        is_agentgyms = status == subject.served.compat_error_status
        if is_agentgyms and is_object and isinstance(answer.get("error"), str):
            return
    elif status == STATUS[expected]:
        if subject.compat or (is_object and answer.get("type") == expected):
            return
    raise Violation(f"{where} has status {status}: {_shown(answer)}, expected the error {expected}")


def _exchange(
    subject: Subject, method: str, target: str, body: dict[str, Any] | None, where: str
) -> tuple[int, Any]:
    try:
        return subject.server.exchange(method, target, body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Violation(f"{where}: no answer in JSON: {type(error).__name__}: {error}") from error


def _shown(body: Any) -> str:
    return shorten(body.decode("utf-8", "replace") if isinstance(body, bytes) else ascii(body))
