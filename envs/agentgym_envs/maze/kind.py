"""Maze as a server: what it says about itself and the shape of its answers."""

from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.kind import Answers, EnvironmentKind, ExtraRoute, IdBody
from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind
from agentgym_envs.maze.environment import (
    MazeEnvironment,
    make_compat_environment,
    make_environment,
)
from agentgym_envs.maze.layout import MOVES
from agentgym_envs.maze.tasks import all_tasks, task_manifest

# Changes when a maze, a task or a text changes.
BEHAVIOUR = "1"
MAX_TURNS = 15

INSTRUCTIONS = """\
You walk through a maze and must reach the goal in as few moves as you can. Every observation \
tells three things: where the goal is, where you are, and on which of your four sides there is a \
wall. A position is a row and a column: rows are counted from the top, columns from the left.

Actions, each by one cell:
- move up: the row becomes one smaller.
- move down: the row becomes one larger.
- move left: the column becomes one smaller.
- move right: the column becomes one larger.

A move into a wall leaves you where you are and still counts. The straight way is often closed: \
you may have to walk away from the goal for some moves to get around a wall.

Reply in this form, with a single action:
Thought: which way is open and leads on.
Action: the action"""


class GameBody(IdBody):
    """Body of `POST /reset`."""

    game: int


def make_kind() -> EnvironmentKind:
    """Maze for the server."""
    return EnvironmentKind(
        spec=EnvironmentSpec(
            name="maze",
            version=BEHAVIOUR,
            instructions=INSTRUCTIONS,
            action_format="react",
            num_tasks=len(all_tasks()),
            manifest_sha256=manifest.sha256(task_manifest()),
            max_turns=MAX_TURNS,
            refusal="You cannot ",
            success_score=1.0,
        ),
        banner="This is environment LMRL-Gym.",
        factory=make_environment,
        compat_factory=make_compat_environment,
        tasks=task_manifest,
        answers=Answers(
            create=lambda session_id, first: {"id": session_id},
            reset=lambda session_id, result: {"observation": result.observation},
            step=_step_answer,
            observation=_observation_answer,
        ),
        create_body=None,
        reset_body=GameBody,
        resets_on_create=False,
        compat_refused_when_done=frozenset({"step", "observation", "detail"}),
        extra_routes=(ExtraRoute("/detail", "GET", MazeEnvironment.detail),),
        facts={"/available_actions": list(MOVES)},
        path_prefix="/maze",
        task_field="game",
    )


def _step_answer(result: StepResult) -> dict[str, Any]:
    return {"observation": result.observation, "reward": result.reward, "done": result.done}


def _observation_answer(environment: Environment, last: StepResult | None) -> str:
    if last is None:
        raise EnvironmentFault(
            ErrorKind.NOT_RESET,
            "this session was never reset. POST /reset first.",
            compat_message="'observation'",  # the dictionary entry that AgentGym misses
        )
    return last.observation
