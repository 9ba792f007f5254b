"""Maze as a served environment: its spec, routes and answer bodies."""

from agentgym_envs.base import manifest
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    ExtraRoute,
    IdBody,
    ServedEnvironment,
    compat_last_observation,
)
from agentgym_envs.maze.environment import MazeEnvironment
from agentgym_envs.maze.layout import MOVES
from agentgym_envs.maze.rules import CompatRules, Rules
from agentgym_envs.maze.tasks import all_tasks, task_manifest

# Version of the behaviour: changes when a maze, a task or a text changes.
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


def make_served_environment() -> ServedEnvironment:
    """Returns Maze as a served environment."""
    return ServedEnvironment(
        spec=EnvironmentSpec(
            name="maze",
            version=BEHAVIOUR,
            instructions=INSTRUCTIONS,
            action_format="react",
            num_tasks=len(all_tasks()),
            manifest_sha256=manifest.sha256(task_manifest()),
            max_turns=MAX_TURNS,
            refusal="You cannot ",
        ),
        banner="This is environment LMRL-Gym.",
        factory=lambda: MazeEnvironment(Rules()),
        compat_factory=lambda: MazeEnvironment(CompatRules()),
        tasks=task_manifest,
        answers=Answers(
            reset=lambda session_id, result: {"observation": result.observation},
            observation=compat_last_observation,
        ),
        reset_body=GameBody,
        compat_refused_when_done=frozenset({"step", "observation", "detail"}),
        extra_routes=(ExtraRoute("/detail", "GET", MazeEnvironment.detail),),
        facts={"/available_actions": list(MOVES)},
        path_prefix="/maze",
        task_field="game",
    )
