"""ServedEnvironment: the data and functions with which a server serves one environment.

The servers of AgentGym differ in details: the answer of `/create`, the keys of `/reset`, the
answers after the end of an episode. Each environment package describes these differences in its
ServedEnvironment, so the server contains no code for a particular environment.
"""

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from agentgym_envs.base import manifest
from agentgym_envs.base import options as environment_options
from agentgym_envs.base.environment import Environment, EnvironmentFault, SetupError, StepResult
from agentgym_envs.base.isolated_random import IsolatedRandom
from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind, check_tools
from agentgym_envs.base.user_code import loading


class SessionBody(pydantic.BaseModel):
    """Body of a request about one session; a subclass's first field is the session id."""

    @property
    def session(self) -> int:
        """Id of the session."""
        return getattr(self, next(iter(type(self).model_fields)))


class IdBody(SessionBody):
    """Body whose field `id` names the session, as in most of AgentGym's servers."""

    id: int


class StepBody(IdBody):
    """Body of `POST /step`."""

    action: str


class EnvIdxBody(SessionBody):
    """Body whose field `env_idx` names the session, as in AgentGym's other servers."""

    env_idx: int


class EnvIdxStepBody(EnvIdxBody):
    """Body of `POST /step` with the field `env_idx`."""

    action: str


class ResetBody(IdBody):
    """Body of `POST /reset` that must name the task."""

    data_idx: int


class ResetOrFirstBody(IdBody):
    """Body of `POST /reset` that can omit the task; the default is the first task."""

    data_idx: int | None = 0


class EmptyBody(pydantic.BaseModel):
    """Body that must be a JSON object, whose fields are ignored."""


def three_fields(result: StepResult) -> dict[str, Any]:
    """Returns the answer to a step without the score, as some of AgentGym's servers do."""
    return {"observation": result.observation, "reward": result.reward, "done": result.done}


def four_fields(result: StepResult) -> dict[str, Any]:
    """Returns the answer to a step with the score."""
    return {
        "observation": result.observation,
        "reward": result.reward,
        "score": result.score,
        "done": result.done,
    }


def last_observation(
    environment: Environment, last: StepResult | None, compat_message: str | None = None
) -> str:
    """Returns the answer of `GET /observation`; raises EnvironmentFault (NOT_RESET)."""
    if last is None:
        raise never_reset(compat_message)
    return last.observation


def never_reset(compat_message: str | None = None) -> EnvironmentFault:
    """Returns the error for an observation before the first reset."""
    return EnvironmentFault(
        ErrorKind.NOT_RESET, "this session was never reset. POST /reset first.", compat_message
    )


# Like `last_observation`, with AgentGym's text of a KeyError before the first reset.
compat_last_observation = functools.partial(last_observation, compat_message="'observation'")


def told_observation(environment: Any, last: StepResult | None) -> str:
    """Like `last_observation`, for an environment with a method of this name that decides."""
    if last is None:
        raise never_reset()
    return environment.last_observation()


@dataclasses.dataclass(frozen=True)
class Answers:
    """Functions that return the bodies of successful answers, with exactly AgentGym's keys.

    Attributes:
      reset: Function of the session id and the result of `reset`.
      step: Function of the result of `step`.
      observation: Function of the environment and its last result, which is None before the first
        reset. The function can raise EnvironmentFault (NOT_RESET).
      create: Function of the new session id and the first result; this result is None unless the
          environment resets on create.
      detail: Function for `GET /detail` with the same arguments as `observation`; None where
          AgentGym has no such route.
    """

    reset: Callable[[int, StepResult], Any]
    step: Callable[[StepResult], Any] = three_fields
    observation: Callable[[Any, StepResult | None], Any] = last_observation
    create: Callable[[int, StepResult | None], Any] = lambda session_id, first: {"id": session_id}
    detail: Callable[[Any, StepResult | None], Any] | None = None


@dataclasses.dataclass(frozen=True)
class ExtraRoute:
    """A route that only one environment has. The session must have been reset before a request.

    Attributes:
      path: Path such as `/render`. Its last word names the route in `compat_refused_when_done`.
      method: `GET` (id in the query) or `POST` (id in the body).
      answer: Function that makes the body of the answer from the environment.
    """

    path: str
    method: str
    answer: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class StepRoute:
    """A POST route that only one environment has. It executes a step and has a special answer.

    Attributes:
      path: Path such as `/step_visual`.
      read_action: Function from the body's field `action` to the action for `Environment.step`.
      answer: Function that makes the body of the answer from the environment and the result of the
          step.
    """

    path: str
    read_action: Callable[[str], str]
    answer: Callable[[Any, StepResult], Any]


@dataclasses.dataclass(frozen=True)
class ServedEnvironment:
    """An environment that is ready to be served.

    Attributes:
      spec: Answer of `GET /spec`.
      banner: Answer of `GET /`.
      factory: Function that creates an environment with our corrected scoring and texts.
      compat_factory: Function that creates an environment that behaves like AgentGym's server,
          oddities included.
      tasks: Function that returns the task manifest: objects with `data_idx`, `split` and facts.
      answers: Functions for the bodies of successful answers.
      create_body: Model of the body of `POST /create`; None if the body is ignored.
      reset_body: Model of the reset body: ResetBody, ResetOrFirstBody, or another model with the
          field `task_field`.
      resets_on_create: True if `/create` starts the task whose index is the new session id modulo
          the number of tasks.
      compat_refused_when_done: Routes that AgentGym's server refuses after the end of an episode,
        such as `step`. Our default mode refuses only `step`.
      extra_routes: Routes that other environments do not have.
      step_routes: Additional routes that execute a step.
      facts: Answer for each GET path that concerns no session, such as a list of all moves.
      path_prefix: Prefix of every route, such as `/maze`.
      task_field: Field of the reset body that contains the index of the task.
      session_body: IdBody or EnvIdxBody; its only field names the session in all requests.
      step_body: StepBody or EnvIdxStepBody, matching `session_body`.
      compat_error_status: Status of AgentGym's answers to failed requests: 200, or 500 if its
        server does not catch the exception.
      compat_not_reset: AgentGym's text for a step before the first reset; `{id}` is the id of the
        session. The default is the message of a KeyError for the id.
      compat_closed: AgentGym's text for a closed session; `{id}` is its id.
      prepare: Function that each worker process calls once before it serves, to load or start the
        resources that its environments share. It can raise SetupError.
      shared: Function that returns a context manager for resources that all workers share, such as
        web sites. The server enters it before its workers start and leaves it after they have
        ended. The context manager sets environment variables by which the workers find the
        resources. If the variables are missing, `prepare` starts the resources. The context manager
        can raise SetupError.
      sessions_path: Path of a GET route that lists the open sessions; empty if there is none.
    """

    spec: EnvironmentSpec
    banner: str
    factory: Callable[[], Environment]
    compat_factory: Callable[[], Environment]
    tasks: Callable[[], Sequence[Mapping[str, Any]]]
    answers: Answers
    create_body: type[pydantic.BaseModel] | None = None
    reset_body: type[SessionBody] = ResetBody
    resets_on_create: bool = False
    compat_refused_when_done: frozenset[str] = frozenset({"step"})
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
    prepare: Callable[[], object] = lambda: None
    shared: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    sessions_path: str = ""

    @property
    def session_field(self) -> str:
        """Name of the request field that contains the session id."""
        return next(iter(self.session_body.model_fields))


def load_environment(
    module: str, options: Mapping[str, environment_options.Value] | None = None
) -> ServedEnvironment:
    """Loads the environment of a module that defines `make_served_environment()`.

    The options are keyword arguments of that function; strings are converted to the types of its
    defaults.

    Raises:
      SetupError: The module cannot be imported, does not define the function, or has no such
          option; or the function fails or returns something else.
    """
    try:
        with loading(f"the module {module} cannot be imported", besides=(ImportError, SyntaxError)):
            loaded = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise SetupError(f"the module {module} cannot be imported: {error}") from error
    if not hasattr(loaded, "make_served_environment"):
        raise SetupError(
            f"the module {module} has no function make_served_environment(), which every environment offers"
        )
    make_served_environment = loaded.make_served_environment
    bound = environment_options.bind(make_served_environment, options or {}, module)
    with loading(f"the environment of {module} cannot be made"):
        served = make_served_environment(**bound)
    if not isinstance(served, ServedEnvironment):
        raise SetupError(
            f"make_served_environment() of {module} returned {type(served).__name__}, expected a "
            "ServedEnvironment; return the value of standard_environment(...)"
        )
    return served


def prepare(served: ServedEnvironment) -> None:
    """Calls `served.prepare`.

    Raises:
      SetupError: The environment cannot run here, or its code fails.
    """
    with loading(f"{served.spec.name} cannot be prepared"):
        served.prepare()


def standard_environment(
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
    tools: Sequence[Mapping[str, Any]] = (),
    isolate_random: bool = False,
) -> ServedEnvironment:
    """Returns a served environment with the standard answers, for one that AgentGym does not serve.

    The answer of `/create` has `id`. The answers of `/reset` and `/step` have `observation`,
    `reward`, `score` and `done`. The other keywords are those of EnvironmentSpec. `isolate_random` is
    for a simulator that uses the global generators of `random` or numpy: each session then has its
    own state of them (`IsolatedRandom`), which depends only on the task and the actions.

    Raises:
      ValueError: The manifest or a tool is wrong.
    """
    manifest.check(tasks)
    check_tools(tools)
    if isolate_random:
        factory = functools.partial(IsolatedRandom, factory, name)
    return ServedEnvironment(
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
            tools=[dict(tool) for tool in tools],
        ),
        banner=f"This is environment {name}.",
        factory=factory,
        compat_factory=factory,
        tasks=lambda: tasks,
        answers=Answers(reset=lambda session_id, result: four_fields(result), step=four_fields),
    )
