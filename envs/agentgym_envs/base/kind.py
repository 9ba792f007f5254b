"""EnvironmentKind: all a server knows about one environment, as data and functions.

The servers of AgentGym differ in small ways (what `/create` answers, which keys `/reset` has,
what is served after the end). Those differences are values here, one record per environment
package, and the server has no branch that names an environment.
"""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from agentgym_envs.base import manifest
from agentgym_envs.base import options as environment_options
from agentgym_envs.base.environment import (
    Environment,
    EnvironmentFault,
    SetupError,
    StepResult,
)
from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind


class SessionBody(pydantic.BaseModel):
    """Body of a request about one session; a subclass has the field that names it."""

    @property
    def session(self) -> int:
        """Number of the session."""
        raise NotImplementedError


class IdBody(SessionBody):
    """A session by the field `id`, as most of AgentGym's servers name it."""

    id: int

    @property
    def session(self) -> int:
        """Number of the session."""
        return self.id


class StepBody(IdBody):
    """Body of `POST /step`."""

    action: str


class EnvIdxBody(SessionBody):
    """A session by the field `env_idx`, as AgentGym's other servers name it."""

    env_idx: int

    @property
    def session(self) -> int:
        """Number of the session."""
        return self.env_idx


class EnvIdxStepBody(EnvIdxBody):
    """Body of `POST /step` in that dialect."""

    action: str


class ResetBody(IdBody):
    """Body of `POST /reset` where the task must be named."""

    data_idx: int


class ResetOrFirstBody(IdBody):
    """Body of `POST /reset` where the task defaults to the first one."""

    data_idx: int | None = 0


class EmptyBody(pydantic.BaseModel):
    """A body that must be a JSON object; its fields are ignored."""


@dataclasses.dataclass(frozen=True)
class Answers:
    """Bodies of successful answers, with exactly AgentGym's keys.

    Attributes:
      create: from the new id and, if the environment resets on create, its first answer.
      reset: from the id and the answer of `reset`.
      step: from the answer of `step`.
      observation: from the environment and its last answer, None before the first reset;
        may raise EnvironmentFault (NOT_RESET).
      detail: the same for `GET /detail`; None where AgentGym has no such route.
    """

    create: Callable[[int, StepResult | None], Any]
    reset: Callable[[int, StepResult], Any]
    step: Callable[[StepResult], Any]
    observation: Callable[[Any, StepResult | None], Any]
    detail: Callable[[Any, StepResult | None], Any] | None = None


@dataclasses.dataclass(frozen=True)
class ExtraRoute:
    """A route that only this environment has. The session must have been reset.

    Attributes:
      path: such as `/render`; the last word names the route in `refused_when_done`.
      method: `GET` (id in the query) or `POST` (id in the body).
      answer: body of the answer, from an environment of this kind.
    """

    path: str
    method: str
    answer: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class StepRoute:
    """A POST route of this environment alone that makes a step and answers in its own way.

    Attributes:
      path: such as `/step_visual`.
      read_action: from the field `action` of the body to the action of `Environment.step`.
      answer: body of the answer, from the environment and the result of the step.
    """

    path: str
    read_action: Callable[[str], str]
    answer: Callable[[Any, StepResult], Any]


def _nothing() -> None:
    """Most simulators need no preparation."""


@dataclasses.dataclass(frozen=True)
class EnvironmentKind:
    """One environment, ready to be served.

    Attributes:
      spec: answer of `GET /spec`.
      banner: answer of `GET /`.
      factory: makes an environment with our (right) scoring and texts.
      compat_factory: makes one that behaves as AgentGym's server, oddities included.
      tasks: the task manifest: JSON objects with `data_idx`, `split` and facts.
      answers: bodies of successful answers.
      create_body: what `POST /create` must contain; None: the body is ignored.
      reset_body: ResetBody, ResetOrFirstBody, or another body with `task_field`.
      resets_on_create: `/create` starts the task whose index is the new id, modulo their number.
      compat_refused_when_done: routes that AgentGym's server refuses after the end of an
        episode, such as `step`. Our default mode refuses `step` alone.
      extra_routes: routes that other environments do not have.
      step_routes: the same, for routes that make a step.
      facts: path -> answer of a GET route about no session, such as a list of all moves.
      path_prefix: put before every route, such as `/maze`.
      task_field: field of the reset body that holds the index of the task.
      session_body: IdBody or EnvIdxBody: its one field names the session in all requests.
      step_body: StepBody or EnvIdxStepBody, to fit.
      compat_error_status: of AgentGym's answers to what cannot be served: 200, or 500 where its
        server lets the exception through.
      compat_not_reset: AgentGym's text for a step before the first reset; `{id}` is the number
        of the session (AgentGym's server misses a key by that name).
      compat_closed: AgentGym's text for a session that was closed; `{id}` is its number.
      prepare: called once in each worker process before it serves, to start what its
        environments share. May raise SetupError.
      shared: makes a context that the server enters before its workers start and leaves after they
        have ended, for what all of them share, such as web sites. They find it by environment
        variables that it sets; without a server, `prepare` does without. May raise SetupError.
      sessions_path: of a GET route that lists the open sessions; empty for none.
    """

    spec: EnvironmentSpec
    banner: str
    factory: Callable[[], Environment]
    compat_factory: Callable[[], Environment]
    tasks: Callable[[], Sequence[Mapping[str, Any]]]
    answers: Answers
    create_body: type[pydantic.BaseModel] | None
    reset_body: type[SessionBody]
    resets_on_create: bool
    compat_refused_when_done: frozenset[str]
    extra_routes: tuple[ExtraRoute, ...] = ()
    step_routes: tuple[StepRoute, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    path_prefix: str = ""
    task_field: str = "data_idx"
    session_body: type[SessionBody] = IdBody
    step_body: type[SessionBody] = StepBody
    compat_error_status: int = 200
    compat_not_reset: str = "{id}"
    compat_closed: str = "The id {id} is not valid."
    prepare: Callable[[], None] = _nothing
    shared: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    sessions_path: str = ""

    @property
    def session_field(self) -> str:
        """Name of the field that names the session."""
        return next(iter(self.session_body.model_fields))


def load_kind(
    module: str, options: Mapping[str, environment_options.Value] | None = None
) -> EnvironmentKind:
    """The environment of a module, which offers `make_kind()`.

    Args:
      module: name, as for import.
      options: keyword arguments of `make_kind`; texts are read by the type of its defaults.

    Raises:
      SetupError: the module cannot be imported, offers no such function, or has no such option.
    """
    try:
        loaded = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise SetupError(f"the module {module} cannot be imported: {error}") from error
    if not hasattr(loaded, "make_kind"):
        raise SetupError(
            f"the module {module} has no function make_kind(), which every environment offers"
        )
    make_kind = loaded.make_kind
    return make_kind(**environment_options.bind(make_kind, options or {}, module))


def standard_answers() -> Answers:
    """Answers of an environment that copies no server of AgentGym's.

    `/create` answers `id`; `/reset` and `/step` answer `observation`, `reward`, `score` and `done`.
    """
    return Answers(
        create=lambda session_id, first: {"id": session_id},
        reset=lambda session_id, result: _four_fields(result),
        step=_four_fields,
        observation=_last_observation,
    )


def standard_kind(
    factory: Callable[[], Environment],
    tasks: Sequence[Mapping[str, Any]],
    *,
    name: str,
    version: str,
    instructions: str,
    max_turns: int,
    refusal: str = "",
    success_score: float = 1.0,
    max_score: float = 1.0,
    action_format: str = "react",
) -> EnvironmentKind:
    """An environment that copies no server of AgentGym's, ready to be served.

    Args:
      factory: makes an environment.
      tasks: the task manifest.
      name: see EnvironmentSpec, also for all further arguments.
      version: changes with every change of a world or a text.
      instructions: what an agent is told first.
      max_turns: turns of an episode in evaluation.
      refusal: how an observation begins that says that an action could not be done.
      success_score: least score of a solved task.
      max_score: the best score.
      action_format: `react` or `raw`.

    Raises:
      ValueError: the manifest is wrong.
    """
    manifest.check(tasks)
    return EnvironmentKind(
        spec=EnvironmentSpec(
            name=name,
            version=version,
            instructions=instructions,
            action_format=action_format,
            num_tasks=len(tasks),
            manifest_sha256=manifest.sha256(tasks),
            max_turns=max_turns,
            refusal=refusal,
            success_score=success_score,
            max_score=max_score,
        ),
        banner=f"This is environment {name}.",
        factory=factory,
        compat_factory=factory,
        tasks=lambda: tasks,
        answers=standard_answers(),
        create_body=None,
        reset_body=ResetBody,
        resets_on_create=False,
        compat_refused_when_done=frozenset({"step"}),
    )


def _four_fields(result: StepResult) -> dict[str, Any]:
    return {
        "observation": result.observation,
        "reward": result.reward,
        "score": result.score,
        "done": result.done,
    }


def _last_observation(environment: Environment, last: StepResult | None) -> str:
    if last is None:
        raise EnvironmentFault(
            ErrorKind.NOT_RESET, "this session was never reset. POST /reset first."
        )
    return last.observation
