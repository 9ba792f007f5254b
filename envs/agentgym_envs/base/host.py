"""The environments of one process: what a request about a session does, without any transport.

A worker process has one host and feeds it requests one at a time; so does the in-process
transport of the trainer. Both therefore answer with the same bytes.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_envs.base.environment import (
    Environment,
    EnvironmentFault,
    SimulatorLost,
    StepResult,
)
from agentgym_envs.base.kind import EnvironmentKind, StepRoute
from agentgym_envs.base.protocol import ErrorKind

_LOGGER = logging.getLogger(__name__)

# Longer actions are refused with 422: the longest sensible one has some hundred characters.
MAX_ACTION_CHARACTERS = 10_000


def to_json(content: Any) -> bytes:
    """Compact JSON in UTF-8 without NaN, whatever text it has to carry.

    Half a surrogate pair, which UTF-8 cannot write, becomes its JSON escape.
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class _Session:
    """One environment and the last thing it said; None before the first reset."""

    def __init__(self, environment: Environment):
        self.environment = environment
        self.last: StepResult | None = None


class SessionHost:
    """Holds environments by session id and answers requests about them. Not thread-safe.

    Args:
      kind: the environment.
      compat: AgentGym's behaviour, oddities included.
    """

    def __init__(self, kind: EnvironmentKind, compat: bool):
        self._kind = kind
        self._compat = compat
        self._factory = kind.compat_factory if compat else kind.factory
        self._refused_when_done = kind.compat_refused_when_done if compat else frozenset({"step"})
        self._sessions: dict[int, _Session] = {}
        self._operations: Mapping[str, Callable[[int, Any], Any]] = {
            "create": self._create,
            "reset": self._reset,
            "step": self._step,
            "observation": self._observation,
            "detail": self._detail,
            "expert_action": self._expert_action,
            "valid_actions": self._valid_actions,
            "state": self._state,
            "close": self._close,
            **{route.path: self._step_route(route) for route in kind.step_routes},
            **{
                route.path: self._extra_route(route.path.removeprefix("/"), route.answer)
                for route in kind.extra_routes
            },
        }

    def answer(self, operation: str, session_id: int, argument: Any) -> bytes:
        """JSON body of the answer to one request.

        Args:
          operation: `create`, `reset`, `step`, ..., or the path of a route of this kind alone.
          session_id: of the session; `create` makes it.
          argument: task index of a reset, action of a step, else None.

        Raises:
          EnvironmentFault: the request cannot be served. After SIMULATOR the session is gone.
          SimulatorLost: none of the sessions can be served any more.
        """
        # Guarded as a whole: an answer that is no JSON (a NaN reward) is a crash like any other.
        return self._run(
            session_id, lambda: to_json(self._operations[operation](session_id, argument))
        )

    def close_all(self) -> None:
        """Releases everything."""
        for session_id in list(self._sessions):
            self._close(session_id, None)

    def _create(self, session_id: int, argument: Any) -> Any:
        session = self._sessions[session_id] = _Session(self._factory())
        if self._kind.resets_on_create:
            first_task = session_id % self._kind.spec.num_tasks
            session.last = session.environment.reset(first_task)
        return self._kind.answers.create(session_id, session.last)

    def _reset(self, session_id: int, data_idx: int | None) -> Any:
        session = self._session(session_id)
        if data_idx is None:
            raise EnvironmentFault(
                ErrorKind.INVALID_REQUEST,
                f"{self._kind.task_field} is null. Send an integer.",
                compat_message="unsupported operand type(s) for %: 'NoneType' and 'int'",
            )
        # AgentGym's own rule for an index outside the tasks is in the compat environment.
        if not self._compat and not 0 <= data_idx < self._kind.spec.num_tasks:
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"{self._kind.spec.name} has tasks 0 .. {self._kind.spec.num_tasks - 1}, "
                f"{self._kind.task_field} was {data_idx}",
            )
        session.last = session.environment.reset(data_idx)
        return self._kind.answers.reset(session_id, session.last)

    def _step(self, session_id: int, action: str) -> Any:
        return self._kind.answers.step(self._play(session_id, action))

    def _step_route(self, route: StepRoute) -> Callable[[int, Any], Any]:
        def step(session_id: int, text: str) -> Any:
            result = self._play(session_id, route.read_action(text))
            environment = self._sessions[session_id].environment
            return route.answer(environment, result)

        return step

    def _play(self, session_id: int, action: str) -> StepResult:
        if len(action) > MAX_ACTION_CHARACTERS:
            raise EnvironmentFault(
                ErrorKind.INVALID_REQUEST,
                f"the action has {len(action)} characters, at most {MAX_ACTION_CHARACTERS} are "
                "accepted. Send the action alone, not the whole reply of the model.",
            )
        session = self._playing(session_id, "step")
        session.last = session.environment.step(action)
        return session.last

    def _observation(self, session_id: int, argument: Any) -> Any:
        session = self._session(session_id)
        self._check_not_done(session_id, session, "observation")
        return self._kind.answers.observation(session.environment, session.last)

    def _detail(self, session_id: int, argument: Any) -> Any:
        session = self._session(session_id)
        self._check_not_done(session_id, session, "detail")
        assert self._kind.answers.detail is not None  # else the route does not exist
        return self._kind.answers.detail(session.environment, session.last)

    def _expert_action(self, session_id: int, argument: Any) -> Any:
        session = self._playing(session_id, "step")
        return {"action": session.environment.expert_action()}

    def _valid_actions(self, session_id: int, argument: Any) -> Any:
        session = self._playing(session_id, "step")
        return {"actions": session.environment.valid_actions()}

    def _state(self, session_id: int, argument: Any) -> Any:
        session = self._playing(session_id, "state")
        return session.environment.state()

    def _extra_route(self, name: str, answer: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
        def extra(session_id: int, argument: Any) -> Any:
            return answer(self._playing(session_id, name).environment)

        return extra

    def _close(self, session_id: int, argument: Any) -> bool:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        try:
            session.environment.close()
        except SimulatorLost:
            raise
        except Exception:
            # The session is gone either way, and whoever closes it can do nothing about it.
            _LOGGER.exception("session %d was not closed cleanly", session_id)
        return True

    def _session(self, session_id: int) -> _Session:
        if session_id not in self._sessions:
            raise unknown_session(session_id)
        return self._sessions[session_id]

    def _playing(self, session_id: int, route: str) -> _Session:
        """A session that was reset and, where the route needs it, is not done."""
        session = self._session(session_id)
        if session.last is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET,
                f"session {session_id} was never reset. POST /reset first.",
                compat_message=self._kind.compat_not_reset.format(id=session_id),
            )
        self._check_not_done(session_id, session, route)
        return session

    def _check_not_done(self, session_id: int, session: _Session, route: str) -> None:
        if route in self._refused_when_done and session.last is not None and session.last.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED,
                f"the episode of session {session_id} is over. POST /reset to start another.",
                compat_message=f"The task with environment {session_id} has finished.",
            )

    def _run(self, session_id: int, function: Callable[[], bytes]) -> bytes:
        """Calls the simulator; a crash becomes a typed error and the session is given up."""
        try:
            return function()
        except (EnvironmentFault, SimulatorLost):
            raise
        except Exception as error:
            _LOGGER.exception("the simulator of session %d failed", session_id)
            self._close(session_id, None)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"the simulator of session {session_id} failed with {type(error).__name__}: "
                f"{error}. The session is closed; create a new one.",
            ) from error


def unknown_session(session_id: int, compat_message: str | None = None) -> EnvironmentFault:
    """The error of a request about a session that is not there."""
    return EnvironmentFault(
        ErrorKind.UNKNOWN_SESSION,
        f"there is no session {session_id}: never created, closed, or expired. POST /create first.",
        compat_message=compat_message or f"The id {session_id} is not valid.",
    )
