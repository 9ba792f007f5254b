"""SessionHost: holds the environments of one process and answers requests about their sessions.

Each worker process and each `InProcessServer` passes its requests to a SessionHost, one at a time.
Both kinds of server therefore return the same bytes.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentgym_envs.base.environment import (
    Environment,
    EnvironmentFault,
    SimulatorLost,
    StepResult,
    check_task,
)
from agentgym_envs.base.protocol import ErrorKind, clean_text, is_solved
from agentgym_envs.base.served import ServedEnvironment, StepRoute
from agentgym_envs.base.user_code import describe, origin, play, text_of, texts_of

_LOGGER = logging.getLogger(__name__)

# Longer actions are refused with status 422. Sensible actions are much shorter.
MAX_ACTION_CHARACTERS = 10_000

# A reset and a step whose answers have the same fields in every environment. The fields of AgentGym's
# servers differ.
UNIFORM_RESET, UNIFORM_STEP = "uniform_reset", "uniform_step"
UNIFORM_OPERATIONS = frozenset({UNIFORM_RESET, UNIFORM_STEP})


def to_json(content: Any) -> bytes:
    """Encodes a value as compact JSON in UTF-8; NaN is an error.

    A lone surrogate, which UTF-8 cannot represent, is written as its JSON escape.
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class _Session:
    """One environment and its last result, which is None before the first reset."""

    def __init__(self, environment: Environment):
        self.environment = environment
        self.last: StepResult | None = None


class SessionHost:
    """Holds environments by session id and answers requests about them. Not thread-safe."""

    def __init__(self, served: ServedEnvironment, compat: bool):
        self._served = served
        self._compat = compat
        self._factory = served.compat_factory if compat else served.factory
        self._refused_when_done = served.compat_refused_when_done if compat else frozenset({"step"})
        self._sessions: dict[int, _Session] = {}
        self._reported: set[str] = set()  # errors whose traceback is in the log
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
            UNIFORM_RESET: self._uniform_reset,
            UNIFORM_STEP: self._uniform_step,
            **{route.path: self._step_route(route) for route in served.step_routes},
            **{
                route.path: self._extra_route(route.path.removeprefix("/"), route.answer)
                for route in served.extra_routes
            },
        }

    def answer(self, operation: str, session_id: int, argument: Any) -> bytes:
        """Returns the JSON body of the answer to one request.

        Args:
          operation: Operation such as `create`, `reset` or `step`, or the path of an extra route of
              this environment.
          session_id: Id of the session. The operation `create` opens a session with this id.
          argument: Task index of a reset, action of a step, otherwise None.

        Raises:
          EnvironmentFault: The request cannot be served. After SIMULATOR the session is closed.
          SimulatorLost: No session of this host can be served any more.
        """
        # A NaN reward, which JSON cannot express, is handled like a crash of the simulator.
        return self._run(
            session_id, lambda: to_json(self._operations[operation](session_id, argument))
        )

    def close_all(self) -> None:
        """Closes all sessions."""
        for session_id in list(self._sessions):
            self._close(session_id, None)

    def _create(self, session_id: int, argument: Any) -> Any:
        session = self._sessions[session_id] = _Session(self._factory())
        if self._served.resets_on_create:
            first_task = session_id % self._served.spec.num_tasks
            session.last = play(session.environment.reset, first_task)
        return self._served.answers.create(session_id, session.last)

    def _reset(self, session_id: int, data_idx: int | None) -> Any:
        return self._served.answers.reset(session_id, self._start(session_id, data_idx))

    def _uniform_reset(self, session_id: int, data_idx: int) -> Any:
        return self._uniform(self._start(session_id, data_idx))

    def _uniform_step(self, session_id: int, action: str) -> Any:
        return self._uniform(self._play(session_id, action))

    def _uniform(self, result: StepResult) -> dict[str, Any]:
        """Returns the fields of a result, and whether the task is solved.

        The unit of the reward is chosen so that 1 is the maximum.
        """
        spec = self._served.spec
        return {
            "text": result.text,
            "reward": result.reward / spec.max_score,
            "done": result.done,
            "score": result.score,
            "success": result.done and is_solved(result.score, spec.success_score),
        }

    def _start(self, session_id: int, data_idx: int | None) -> StepResult:
        session = self._session(session_id)
        if data_idx is None:
            raise EnvironmentFault(
                ErrorKind.INVALID_REQUEST,
                f"{self._served.task_field} is null. Send an integer.",
                compat_message="unsupported operand type(s) for %: 'NoneType' and 'int'",
            )
        # Under `--compat` an environment of AgentGym applies its rule for indices without a task.
        has_rule = self._compat and self._served.compat_factory is not self._served.factory
        if not has_rule:
            spec = self._served.spec
            check_task(spec.name, data_idx, spec.num_tasks, field=self._served.task_field)
        session.last = play(session.environment.reset, data_idx)
        return session.last

    def _step(self, session_id: int, action: str) -> Any:
        return self._served.answers.step(self._play(session_id, action))

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
        session.last = play(session.environment.step, clean_text(action))
        return session.last

    def _observation(self, session_id: int, argument: Any) -> Any:
        session = self._session(session_id)
        self._check_not_done(session_id, session, "observation")
        return self._served.answers.observation(session.environment, session.last)

    def _detail(self, session_id: int, argument: Any) -> Any:
        session = self._session(session_id)
        self._check_not_done(session_id, session, "detail")
        assert self._served.answers.detail is not None  # this route exists only if `detail` is set
        return self._served.answers.detail(session.environment, session.last)

    def _expert_action(self, session_id: int, argument: Any) -> Any:
        session = self._playing(session_id, "step")
        with self._optional("expert_action"):
            return {"action": text_of(session.environment.expert_action)}

    def _valid_actions(self, session_id: int, argument: Any) -> Any:
        session = self._playing(session_id, "step")
        with self._optional("valid_actions"):
            return {"actions": texts_of(session.environment.valid_actions)}

    @contextlib.contextmanager
    def _optional(self, method: str) -> Iterator[None]:
        """Refuses a request if the environment does not have the method; the session stays open."""
        try:
            yield
        except NotImplementedError:
            raise EnvironmentFault(
                ErrorKind.UNSUPPORTED,
                f"{self._served.spec.name} does not offer {method}: its class does not define it",
                origin=f"no {method}",
            ) from None

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
            # The session is removed in any case, and the caller could not handle the error.
            _LOGGER.exception("session %d was not closed cleanly", session_id)
        return True

    def _session(self, session_id: int) -> _Session:
        if session_id not in self._sessions:
            raise unknown_session(session_id)
        return self._sessions[session_id]

    def _playing(self, session_id: int, route: str) -> _Session:
        """Returns a session that was reset and, if the route requires it, is not finished."""
        session = self._session(session_id)
        if session.last is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET,
                f"session {session_id} was never reset. POST /reset first.",
                compat_message=self._served.compat_not_reset.format(id=session_id),
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
        """Calls the simulator; turns a crash into a typed error and drops the session."""
        try:
            return function()
        except (EnvironmentFault, SimulatorLost):
            raise
        except Exception as error:
            cause = describe(error)
            # An environment that fails at one line usually fails there in every session.
            if (where := origin(error) or cause) not in self._reported:
                self._reported.add(where)
                _LOGGER.exception("the simulator of session %d failed: %s", session_id, cause)
            self._close(session_id, None)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"{cause} (session {session_id} is closed)",
                origin=origin(error),
            ) from error


def unknown_session(session_id: int, compat_message: str | None = None) -> EnvironmentFault:
    """Returns the error for a request about a session that does not exist."""
    return EnvironmentFault(
        ErrorKind.UNKNOWN_SESSION,
        f"there is no session {session_id}: never created, closed, or expired. POST /create first.",
        compat_message=compat_message or f"The id {session_id} is not valid.",
    )
