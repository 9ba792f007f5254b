"""The tool environments as served environments: spec, routes and answer bodies."""

from collections.abc import Callable

import pydantic

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import Environment
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    EnvIdxBody,
    EnvIdxStepBody,
    ServedEnvironment,
    SessionBody,
    told_observation,
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


def serve(
    name: str,
    drawn: TaskSet,
    factory: Callable[[bool], Environment],
    *,
    version: str,
    instructions: str,
    max_turns: int,
    refusal: str,
    answers: Answers,
    reset_body: type[SessionBody],
    create_body: type[pydantic.BaseModel] | None = None,
) -> ServedEnvironment:
    """Returns an environment with drawn tasks as a served environment."""
    return ServedEnvironment(
        spec=EnvironmentSpec(
            name=name,
            version=version,
            instructions=instructions,
            action_format="raw",
            num_tasks=len(drawn.tasks),
            manifest_sha256=manifest.sha256(drawn.manifest),
            max_turns=max_turns,
            refusal=refusal,
        ),
        banner="ok",
        factory=lambda: factory(False),
        compat_factory=lambda: factory(True),
        tasks=lambda: drawn.manifest,
        answers=answers,
        create_body=create_body,
        reset_body=reset_body,
        compat_refused_when_done=frozenset(),
        task_field=list(reset_body.model_fields)[1],
        session_body=EnvIdxBody,
        step_body=EnvIdxStepBody,
        compat_error_status=500,
        sessions_path="/list_envs",
    )


def tool_environment(
    name: str,
    world: type[World],
    drawn: TaskSet,
    *,
    version: str = "1",
    max_turns: int,
    **words: str,
) -> ServedEnvironment:
    """Returns a tool environment as a served environment.

    Args:
      name: Name of the environment.
      world: Class of its worlds, with the tools.
      drawn: Its tasks.
      version: Version of its behaviour.
      max_turns: AgentGym's turn limit.
      words: Parts of the instructions: `about`, the first sentence; `hints`, sentences after the
        list of tools; `example`, a call.
    """
    return serve(
        name,
        drawn,
        lambda is_compat: ToolEnvironment(name, drawn.tasks, world, is_compat=is_compat),
        version=version,
        instructions=_INSTRUCTIONS.format(tools=describe_tools(world), **words),
        max_turns=max_turns,
        refusal=REFUSAL,
        answers=Answers(
            create=lambda session_id, first: session_id,
            reset=lambda session_id, result: result.observation,
            observation=told_observation,
        ),
        create_body=CreateBody,
        reset_body=ResetBody,
    )
