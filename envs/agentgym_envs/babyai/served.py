"""BabyAI as a served environment: its spec, routes and answer bodies."""

import dataclasses
import importlib
import importlib.metadata
from typing import Any

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.scoring import CompatScoring, Scoring
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import Answers, ExtraRoute, ServedEnvironment

# Version of the behaviour: changes when a task or a text changes. The levels come from minigrid.
BEHAVIOUR = "1"
# The environment module is imported only where environments are created. The server's main process
# creates none, and minigrid, gymnasium and numpy would take 25 MiB there.
_ENVIRONMENT = "agentgym_envs.babyai.environment"
MAX_TURNS = 20

INSTRUCTIONS = """\
You control an agent in a grid of rooms and must reach the goal you are given. You see at most \
seven cells ahead and three to each side, and no farther than walls and closed doors. Every \
observation tells what is in sight, what you carry, and ends with the list of the actions that \
are possible now. Reply with exactly one of them, word for word; a number tells apart things \
that look the same.

Kinds of actions:
- turn left, turn right: turn on the spot.
- move forward: one cell straight ahead.
- go to <object> <number>: walk up to a visible object or door and face it.
- pickup <object> <number>: walk up to an object and take it. You can carry one thing.
- drop: put what you carry on the free cell in front of you.
- toggle: open the closed door right in front of you, or a locked one if you carry the key of \
its color.
- go through <door> <number>: walk into the doorway of an open door.
- toggle and go through <door> <number>: walk up to a closed door, open it and step into the \
doorway; for a locked door you must carry the key of its color.
- check available actions: repeat the list of actions.

A longer action stops early if something is in the way. Fewer steps score higher.

Reply in this form:
Thought: why this action helps.
Action: the action"""


def tasks() -> list[dict[str, Any]]:
    """Returns the task manifest, with the first `levels.LISTED_SEEDS` seeds of each level.

    Larger task indices below `num_tasks` exist too and follow the same rule (`levels.task`).
    """
    return [dataclasses.asdict(task) for task in levels.listed_tasks()]


def make_served_environment() -> ServedEnvironment:
    """Returns BabyAI as a served environment."""
    spec = EnvironmentSpec(
        name="babyai",
        version=f"{BEHAVIOUR}-minigrid-{importlib.metadata.version('minigrid')}",
        instructions=INSTRUCTIONS,
        action_format="react",
        num_tasks=levels.NUM_TASKS,
        manifest_sha256=manifest.sha256(tasks()),
        max_turns=MAX_TURNS,
        # "You cannot see any objects" begins the description of an empty view, not a rejection.
        refusal=r"The action is not recognized|You cannot (?!see any objects)",
        # A success pays 1 - 0.9 * moves / limit, which is at least 0.1. A failure pays nothing.
        success_score=0.05,
    )
    return ServedEnvironment(
        spec=spec,
        banner="This is environment BabyAI.",
        factory=lambda: _make(Scoring()),
        compat_factory=lambda: _make(CompatScoring()),
        tasks=tasks,
        answers=Answers(
            reset=lambda session_id, result: {**dataclasses.asdict(result), "deleted": False},
            step=dataclasses.asdict,
            observation=_observation_answer,
        ),
        compat_refused_when_done=frozenset({"step", "observation", "render"}),
        extra_routes=(ExtraRoute("/render", "POST", lambda environment: environment.render()),),
        prepare=lambda: importlib.import_module(_ENVIRONMENT),
    )


def _make(scoring: Scoring) -> Environment:
    return importlib.import_module(_ENVIRONMENT).BabyAIEnvironment(scoring)


def _observation_answer(environment: Any, last: StepResult | None) -> dict[str, Any]:
    """Returns the goal and the last observation; AgentGym's text before the first reset."""
    if last is None:
        result = StepResult("Environment not initialized", 0, 0, False)
    else:
        result = environment.observe()
    return {**dataclasses.asdict(result), "deleted": False}
