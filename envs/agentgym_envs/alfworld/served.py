"""ALFWorld as a served environment: its option, spec, routes and answer bodies."""

import functools
import importlib.metadata
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from agentgym_envs.alfworld import houses
from agentgym_envs.alfworld.environment import AlfWorldEnvironment, Told
from agentgym_envs.alfworld.games import find_games, read_game
from agentgym_envs.alfworld.rules import Game
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    ExtraRoute,
    IdBody,
    ServedEnvironment,
    compat_last_observation,
)

# Version of the behaviour: changes when a house, a task or a text changes.
BEHAVIOUR = "1"
MAX_TURNS = 30
MOST_TASKS = 100_000
KEPT_GAMES = 256
KNOWS, SEARCHES = "knows", "searches"  # kinds of the expert

INSTRUCTIONS = """\
You are in a room and have a household task, which the first message tells: bring one or two things \
to a place, perhaps clean, hot or cool, or look at a thing in the light of a lamp. Things and places \
have numbers, such as `mug 2` and `drawer 1`. You see what lies in or on a place only when you are \
there, and in a closed one only when you have opened it. You can carry one thing.

Actions:
- go to PLACE; open PLACE; close PLACE.
- take THING from PLACE; put THING in/on PLACE.
- clean THING with PLACE: what you carry, at a sinkbasin. heat THING with PLACE: at a microwave. \
cool THING with PLACE: at a fridge.
- use THING: turns on a lamp at the place where you are.
- examine THING or PLACE; look; inventory: tell about things and change nothing.

"Nothing happens." means that the action was not possible.

Reply in this form, with a single action:
Thought: why this action helps.
Action: the action"""


class ResetBody(IdBody):
    """Body of `POST /reset`. The world types differ only in AgentGym's messages."""

    game: int
    world_type: Literal["Text", "Embody", "Hybrid"] = "Text"


def make_served_environment(
    *, games: str = "", expert: str = KNOWS, more_tasks: int = 0
) -> ServedEnvironment:
    """Returns ALFWorld as a served environment.

    Args:
      games: Folder of ALFWorld's downloaded games; if empty, generated houses are served.
      expert: `knows` for an expert that knows where everything is, `searches` for one that knows
        only what the texts have told.
      more_tasks: Number of generated train tasks beyond AgentGym's 2620, whose indices they follow.

    Raises:
      SetupError: The package alfworld is not installed, the folder has no games, or an option has an
        impossible value.
    """
    if expert not in (KNOWS, SEARCHES):
        raise SetupError(f"expert={expert!r:.80}; expected {KNOWS} or {SEARCHES}")
    if not 0 <= more_tasks <= MOST_TASKS or (games and more_tasks):
        raise SetupError(
            f"more_tasks={more_tasks}; expected at most {MOST_TASKS:,}, and 0 with `games`"
        )
    tasks, load, source = _downloaded(games) if games else _generated(more_tasks)

    def make(is_compat: bool) -> AlfWorldEnvironment:
        return AlfWorldEnvironment(load, len(tasks), is_compat, expert == SEARCHES)

    return ServedEnvironment(
        spec=EnvironmentSpec(
            name="alfworld",
            version=f"{BEHAVIOUR}-{source}",
            instructions=INSTRUCTIONS,
            action_format="react",
            num_tasks=len(tasks),
            manifest_sha256=manifest.sha256(tasks),
            max_turns=MAX_TURNS,
            refusal="Nothing happens",
        ),
        banner="This is environment AlfWorld.",
        factory=functools.partial(make, False),
        compat_factory=functools.partial(make, True),
        tasks=lambda: tasks,
        answers=Answers(
            reset=_reset_answer,
            step=_step_answer,
            observation=compat_last_observation,
            detail=_detail_answer,
        ),
        reset_body=ResetBody,
        task_field="game",
        compat_refused_when_done=frozenset({"step", "observation", "available_actions", "detail"}),
        extra_routes=(ExtraRoute("/available_actions", "GET", AlfWorldEnvironment.valid_actions),),
    )


Tasks = Sequence[dict[str, Any]]


def _generated(more_tasks: int) -> tuple[Tasks, Callable[[int], Game], str]:
    """Returns the tasks, the function that builds a game, and a word for the version."""
    tasks = houses.task_manifest(more_tasks)
    version = importlib.metadata.version("alfworld")
    return tasks, _kept(houses.build), f"alfworld-{version}"


def _downloaded(folder: str) -> tuple[Tasks, Callable[[int], Game], str]:
    root = pathlib.Path(folder).expanduser()
    tasks = find_games(root)
    return tasks, _kept(lambda data_idx: read_game(root, tasks[data_idx]["game"])), "games"


def _kept(load: Callable[[int], Game]) -> Callable[[int], Game]:
    return functools.lru_cache(maxsize=KEPT_GAMES)(load)


def _reset_answer(session_id: int, result: StepResult) -> dict[str, Any]:
    assert isinstance(result, Told)  # AlfWorldEnvironment returns no other type
    return {
        "id": session_id,
        "observation": result.observation,
        "available_actions": list(result.available_actions),
        "task_type": result.task_type,
    }


def _step_answer(result: StepResult) -> dict[str, Any]:
    assert isinstance(result, Told)
    return {
        "observation": result.observation,
        "reward": result.reward,
        "available_actions": list(result.available_actions),
        "done": result.done,
    }


def _detail_answer(environment: AlfWorldEnvironment, last: StepResult | None) -> dict[str, Any]:
    """Returns AgentGym's record of a session; before the first reset it contains only flags."""
    flags = {"done": False, "reward": 0, "deleted": False}
    if last is None:
        return flags
    game = environment.episode.data_idx
    return flags | {"world_type": "Text", "game": game} | _step_answer(last)
