"""Properties of a session: what is refused before, after and beside its episodes, and over HTTP."""

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
from agentgym_envs.conformance.subject import NotApplicable, Subject, Violation, shorten

# What a model may write when it is out of its mind.
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


def nothing_is_played_before_the_first_reset(subject: Subject) -> str:
    """A step in a new session is refused."""
    if subject.kind.resets_on_create:
        raise NotApplicable("a new session begins with a task")
    with _host(subject) as host:
        host.answer("create", 0, None)
        _expect_refusal(host, "step", "look", ErrorKind.NOT_RESET, "a step before the first reset")
    return ""


def nothing_is_played_after_the_end(subject: Subject) -> str:
    """A step after the last is refused, whatever it is; a reset starts another episode."""
    if subject.compat and "step" not in subject.kind.compat_refused_when_done:
        raise NotApplicable("AgentGym's server goes on after the end")
    ended = [a for a in subject.attempts if a.is_done and a.actions]
    if not ended:
        raise NotApplicable("no episode of the scripted player came to an end")
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


def an_unknown_task_is_refused_and_ends_nothing(subject: Subject) -> str:
    """Indices outside 0 .. num_tasks - 1; the episode before goes on."""
    if subject.compat:
        raise NotApplicable("AgentGym's servers have rules of their own")
    transcript = subject.transcripts[0]
    with _host(subject) as host:
        host.answer("create", 0, None)
        host.answer("reset", 0, transcript.data_idx)
        for data_idx in (-1, subject.kind.spec.num_tasks, 10**30):
            where = f"a reset to task {data_idx}"
            _expect_refusal(host, "reset", data_idx, ErrorKind.UNKNOWN_TASK, where)
        for turn in transcript.turns[:2]:
            found = host.answer("step", 0, turn.action)
            expected = to_json(subject.kind.answers.step(turn.result))
            if found != expected:
                raise Violation(
                    f"task {transcript.data_idx} after refused resets: {_shown(found)}, expected "
                    f"{_shown(expected)}"
                )
    return ""


def a_closed_session_is_unknown(subject: Subject) -> str:
    """The second close answers false, and nothing else is answered."""
    with _host(subject) as host:
        host.answer("create", 0, None)
        host.answer("reset", 0, subject.indices[0])
        closed = [host.answer("close", 0, None), host.answer("close", 0, None)]
        if closed != [b"true", b"false"]:
            raise Violation(f"closing twice answers {closed}, expected true, then false")
        _expect_refusal(host, "step", "look", ErrorKind.UNKNOWN_SESSION, "a step after the close")
    return ""


def every_route_answers(subject: Subject) -> str:
    """With status 200 and JSON, and the same spec and manifest as in this process."""
    server, kind = subject.server, subject.kind
    expected = {
        "/": kind.banner,
        "/tasks": [dict(task) for task in kind.tasks()],
        **kind.facts,
    }
    for path in (*expected, "/spec", "/health", "/openapi.json"):
        body = _ask(subject, "GET", kind.path_prefix + path)
        if path in expected and body != json.loads(to_json(expected[path])):
            raise Violation(f"GET {path} answers {_shown(body)}, expected {expected[path]!r:.200}")
    found = _ask(subject, "GET", f"{kind.path_prefix}/spec")
    if found["name"] != kind.spec.name or found["manifest_sha256"] != kind.spec.manifest_sha256:
        raise Violation(f"GET /spec answers {_shown(found)}, expected {kind.spec}")
    session = _start(subject, subject.indices[0])
    routes = session_routes(kind)
    for route in routes:
        if route.operation not in ("reset", "step"):
            _ask(subject, *_request(subject, route, session))
    closed = {kind.session_field: session}
    if server.exchange("POST", f"{kind.path_prefix}/close", closed) != (200, True):
        raise Violation("POST /close did not answer true")
    return f"{len(routes)} of sessions"


def the_server_answers_what_the_environment_says(subject: Subject) -> str:
    """An episode over HTTP has the answers that it has in this process."""
    kind = subject.kind
    for transcript in subject.transcripts[:2]:
        session = _start(subject, transcript.data_idx)
        for number, turn in enumerate(transcript.turns, 1):
            found = _step(subject, session, turn.action)
            expected = json.loads(to_json(kind.answers.step(turn.result)))
            if found != expected:
                raise Violation(
                    f"task {transcript.data_idx}, action {number}: the server answers "
                    f"{_shown(found)}, expected {_shown(expected)}"
                )
        _end(subject, session)
    return ""


def errors_of_the_server_are_typed(subject: Subject) -> str:
    """Unknown sessions and bodies that do not fit; under compat in AgentGym's form."""
    routes = session_routes(subject.kind)
    for route in routes:
        method, target, body = _request(subject, route, _UNKNOWN_ID)
        _expect_error(subject, method, target, body, ErrorKind.UNKNOWN_SESSION)
        if method == "POST":
            for unfit in ({}, {**(body or {}), subject.kind.session_field: "a"}):
                _expect_error(subject, method, target, unfit, ErrorKind.INVALID_REQUEST)
    return f"{len(routes)} routes"


def odd_actions_neither_crash_nor_hang(subject: Subject) -> str:
    """Empty, very long, unreadable ones: each is answered, by the process that was asked first."""
    data_idx = subject.indices[0]
    session = _start(subject, data_idx)
    before = _restarts(subject)
    step = f"{subject.kind.path_prefix}/step"
    for action in ODD_ACTIONS:
        where = f"task {data_idx}: the action {shorten(ascii(action))}"
        status, body = _exchange(
            subject, "POST", step, {subject.kind.session_field: session, "action": action}, where
        )
        is_answer = status == 200 and not (isinstance(body, dict) and "error" in body)
        # Half a character is no text; the server may say so.
        if not is_answer and status != STATUS[ErrorKind.INVALID_REQUEST]:
            raise Violation(f"{where} has status {status}: {_shown(body)}")
        if isinstance(body, dict) and body.get("done"):
            _end(subject, session)
            session = _start(subject, data_idx)
    _end(subject, session)
    if _restarts(subject) != before:
        raise Violation(f"task {data_idx}: an odd action ended the process")
    return f"{len(ODD_ACTIONS)} actions"


def a_killed_worker_brings_its_sessions_back(subject: Subject) -> str:
    """The next step has the answer that it would have had."""
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
        os.killpg(pid, signal.SIGKILL)  # every worker leads a group of its own
    for number, turn in enumerate(transcript.turns[half:], half + 1):
        found = _step(subject, session, turn.action)
        expected = json.loads(to_json(subject.kind.answers.step(turn.result)))
        if found != expected:
            raise Violation(
                f"task {transcript.data_idx}, action {number}, after the loss of its process: "
                f"{_shown(found)}, expected {_shown(expected)}"
            )
    _end(subject, session)
    return f"after {half} actions"


@contextlib.contextmanager
def _host(subject: Subject) -> Iterator[SessionHost]:
    host = SessionHost(subject.kind, subject.compat)
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
    """Method, target and body of a request to a route."""
    field = subject.kind.session_field
    if route.method == "GET":
        return "GET", f"{route.path}?{urllib.parse.urlencode({field: session})}", None
    return "POST", route.path, {field: session, "action": "look", subject.kind.task_field: 0}


def _start(subject: Subject, data_idx: int) -> int:
    """A session in which a task has begun."""
    prefix, field = subject.kind.path_prefix, subject.kind.session_field
    # Bodies of `/create` with fields contain the id of AgentGym's tool servers, if anything.
    created = _ask(subject, "POST", f"{prefix}/create", {"id": 0})
    session = created if isinstance(created, int) else created[field]
    _ask(subject, "POST", f"{prefix}/reset", {field: session, subject.kind.task_field: data_idx})
    return session


def _step(subject: Subject, session: int, action: str) -> Any:
    target = f"{subject.kind.path_prefix}/step"
    return _ask(subject, "POST", target, {subject.kind.session_field: session, "action": action})


def _end(subject: Subject, session: int) -> None:
    body = {subject.kind.session_field: session}
    _ask(subject, "POST", f"{subject.kind.path_prefix}/close", body)


def _restarts(subject: Subject) -> int:
    return _ask(subject, "GET", f"{subject.kind.path_prefix}/health")["worker_restarts"]


def _ask(subject: Subject, method: str, target: str, body: dict[str, Any] | None = None) -> Any:
    """The body of an answer that must be a success."""
    where = f"{method} {target}"
    status, answer = _exchange(subject, method, target, body, where)
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
        if status == 200 and is_object and isinstance(answer.get("error"), str):
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
