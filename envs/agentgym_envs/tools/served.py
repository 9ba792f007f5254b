"""The tool environments as served environments: spec, routes and answer bodies."""

from collections.abc import Callable

import pydantic

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    EnvIdxBody,
    EnvIdxStepBody,
    ServedEnvironment,
    never_reset,
    three_fields,
)
from agentgym_envs.tools.environment import REFUSAL, ToolEnvironment, describe_tools
from agentgym_envs.tools.tasks import TaskSet
from agentgym_envs.tools.world import World

_INSTRUCTIONS = """\
{about} You work with these actions:
{tools}

{hints} The task ends with finish.

Answer every message in this form, with one action on the last line; its input is a Python \
dictionary, {{}} if it takes none:
Thought: what you want to find out or do, and why
Action: {example}"""


class CreateBody(pydantic.BaseModel):
    """Body of `POST /create`. Its `id` is ignored, because `POST /reset` chooses the task."""

    id: int


class ResetBody(EnvIdxBody):
    """Body of `POST /reset`."""

    id: int | None = None


def tool_environment(
    name: str,
    world: type[World],
    drawn: TaskSet,
    *,
    version: str,
    max_turns: int,
    about: str,
    hints: str,
    example: str,
) -> ServedEnvironment:
    """Returns a tool environment as a served environment.

    Args:
      name: Name of the environment.
      world: Class of its worlds, with the tools.
      drawn: Its tasks.
      version: Version of the behaviour, which changes when a task, a text or a rule changes.
      max_turns: AgentGym's turn limit.
      about: First sentence of the instructions.
      hints: Sentences of the instructions after the list of tools.
      example: A call as an example.
    """

    def factory(is_compat: bool) -> Callable[[], ToolEnvironment]:
        return lambda: ToolEnvironment(name, drawn.tasks, world, is_compat=is_compat)

    return ServedEnvironment(
        spec=EnvironmentSpec(
            name=name,
            version=version,
            instructions=_INSTRUCTIONS.format(
                about=about, tools=describe_tools(world), hints=hints, example=example
            ),
            action_format="raw",
            num_tasks=len(drawn.tasks),
            manifest_sha256=manifest.sha256(drawn.manifest),
            max_turns=max_turns,
            refusal=REFUSAL,
        ),
        banner="ok",
        factory=factory(False),
        compat_factory=factory(True),
        tasks=lambda: drawn.manifest,
        answers=Answers(
            create=lambda session_id, first: session_id,
            reset=lambda session_id, result: result.observation,
            step=three_fields,
            observation=_observation_answer,
        ),
        create_body=CreateBody,
        reset_body=ResetBody,
        compat_refused_when_done=frozenset(),
        task_field="id",
        session_body=EnvIdxBody,
        step_body=EnvIdxStepBody,
        compat_error_status=500,
        sessions_path="/list_envs",
    )


def _observation_answer(environment: ToolEnvironment, last: StepResult | None) -> str:
    if last is None:
        raise never_reset()
    return environment.last_observation()
