"""ScienceWorld as a served environment: its spec, routes and answer bodies."""

import importlib.metadata
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    ExtraRoute,
    ServedEnvironment,
    StepRoute,
    four_fields,
    never_reset,
)
from agentgym_envs.sciworld.environment import FULL_SCORE, SciWorldEnvironment, Start
from agentgym_envs.sciworld.jvm import PACKAGE_HINT
from agentgym_envs.sciworld.simulator import shared_simulator
from agentgym_envs.sciworld.tasks import all_tasks, task_manifest

# Version of the behaviour: changes when a task or a text changes. The tasks come from scienceworld.
BEHAVIOUR = "1"
MAX_TURNS = 30

INSTRUCTIONS = """\
You are in a house with several rooms and a garden, and must do a small science experiment: heat \
or cool something, measure it, build a circuit, find a living thing, mix chemicals, grow or watch \
plants and animals. The task is told at the start. Points are given for steps on the way, 100 in \
all. Where the task says to focus on something, do so exactly once the right thing is at hand: \
focusing on a wrong thing ends the episode with a failure.

Actions, with names of things as they appear in the observations:
- look around; look at THING; look in THING; inventory; task: to see what is where.
- go to PLACE: through an open door to the next room. open door to PLACE; close door to PLACE.
- open THING; close THING; activate THING; deactivate THING.
- pick up THING; put down THING; move THING to THING.
- pour THING into THING; dunk THING into THING; mix THING (the contents of a container).
- use THING; use THING on THING: tools such as a thermometer, a lighter, a shovel, an axe.
- connect THING to THING; disconnect THING: the terminals of electric parts, such as `connect \
battery anode to orange wire terminal 1`.
- read THING; eat THING; flush THING.
- focus on THING: says that this is the thing the task is about.
- wait (ten units of time); wait1 (one unit).

If a name fits several things, a numbered list asks which is meant: answer with the number alone. \
A longer name, such as `metal pot in kitchen`, avoids the question.

Reply in this form, with a single action:
Thought: why this action helps.
Action: the action"""

# Beginnings of observations that reject an action. Rejections that first name an object have no
# full stop before the reason, unlike the descriptions of rooms and objects.
REFUSAL = (
    r"No known action matches that input\.|Unknown action\. |I'm not sure |It'?s not clear |"
    r"You can't |That can't be |That is already |That object (?:already|does not) |"
    r"Something can't be |There is nothing in |There is only one thing |Connections must specify |You must disconnect |"
    r"[^.\n]{1,120}? (?:is already |is not (?:a container|closeable|edible|moveable|movable|open|openable|"
    r"something that can be activated)\b|isn't open\b|can't be poured |appears broken, |"
    r"is empty, so |does not contain any liquids)"
)


def make_served_environment() -> ServedEnvironment:
    """Returns ScienceWorld as a served environment."""
    spec = EnvironmentSpec(
        name="sciworld",
        version=f"{BEHAVIOUR}-scienceworld-{_package_version()}",
        instructions=INSTRUCTIONS,
        action_format="react",
        num_tasks=len(all_tasks()),
        manifest_sha256=manifest.sha256(task_manifest()),
        max_turns=MAX_TURNS,
        refusal=REFUSAL,
        success_score=FULL_SCORE,
        max_score=FULL_SCORE,
    )
    return ServedEnvironment(
        spec=spec,
        banner="This is environment ScienceWorld.",
        factory=SciWorldEnvironment,
        compat_factory=lambda: SciWorldEnvironment(is_compat=True),
        tasks=task_manifest,
        answers=Answers(
            reset=_reset_answer,
            step=four_fields,
            observation=_observation_answer,
            detail=_detail_answer,
        ),
        compat_refused_when_done=frozenset(
            "step step_visual observation detail action_hint goals task_description object_tree "
            "state".split()
        ),
        extra_routes=(
            ExtraRoute("/action_hint", "GET", _action_hint),
            ExtraRoute("/goals", "GET", lambda env: {"goals": _goals(env)}),
            ExtraRoute(
                "/task_description",
                "GET",
                lambda env: {"task_description": env.episode.description},
            ),
            ExtraRoute("/object_tree", "GET", lambda env: {"object_tree": _object_tree(env)}),
            ExtraRoute("/state", "GET", _state),
        ),
        step_routes=(StepRoute("/step_visual", read_action, _visual_answer),),
        compat_not_reset="'ScienceWorldEnv' object has no attribute 'variationIdx'",
        compat_closed="The task with environment {id} has been deleted.",
        prepare=shared_simulator,
    )


def read_action(text: str) -> str:
    """Extracts the action from a reply: the text after the first `Action:`, or the whole text."""
    text = text.removesuffix("</s>")
    return text.split("Action:")[1].strip() if "Action:" in text else text


def _package_version() -> str:
    try:
        return importlib.metadata.version("scienceworld")
    except importlib.metadata.PackageNotFoundError as error:
        raise SetupError(
            f"sciworld: the Python package scienceworld is missing. {PACKAGE_HINT}"
        ) from error


def _reset_answer(session_id: int, result: StepResult) -> dict[str, Any]:
    assert isinstance(result, Start)  # SciWorldEnvironment.reset always returns a Start
    return {
        "task_name": result.task.task,
        "var_num": result.task.variation,
        "task_description": result.description,
        "observation": result.look,
        "reward": result.reward,
        "score": result.score,
        "deleted": False,
        "done": result.done,
    }


def _observation_answer(environment: SciWorldEnvironment, last: StepResult | None) -> str:
    if last is None:
        raise never_reset("'observation'")  # text of a KeyError in AgentGym's server
    return environment.episode.last.observation


def _detail_answer(environment: SciWorldEnvironment, last: StepResult | None) -> dict[str, Any]:
    """Returns AgentGym's record of a session; before the first reset it contains only two flags."""
    if last is None:
        return {"deleted": False, "done": False}
    episode = environment.episode
    return {
        "task_name": episode.task.task,
        "var_num": episode.task.variation,
        "task_description": episode.description,
        "deleted": False,
        **four_fields(episode.last),
    }


def _visual_answer(environment: SciWorldEnvironment, result: StepResult) -> dict[str, Any]:
    episode, simulator = environment.episode, environment.simulator
    inventory = simulator.fact(episode.world, "inventory")
    return {
        **four_fields(result),
        "info": {
            "moves": episode.moves,
            "score": result.score,
            "reward": result.reward,
            "look": simulator.fact(episode.world, "look"),
            "inv": inventory,
            "taskDesc": simulator.fact(episode.world, "task"),
            "valid": environment.valid_actions(),
            "variationIdx": episode.task.variation,
            "taskName": episode.task.task,
            "simplificationStr": "",
        },
        "object_tree": _object_tree(environment),
        "inventory": inventory,
        "moves": episode.moves,
    }


def _action_hint(environment: SciWorldEnvironment) -> dict[str, list[str]]:
    world = environment.episode.world
    return {
        "possible_actions": environment.simulator.action_templates(world),
        "possible_objects": environment.simulator.objects(world),
    }


def _goals(environment: SciWorldEnvironment) -> str:
    return environment.simulator.fact(environment.episode.world, "goal_progress")


def _object_tree(environment: SciWorldEnvironment) -> Any:
    return environment.simulator.object_tree(environment.episode.world)


def _state(environment: SciWorldEnvironment) -> dict[str, Any]:
    episode, simulator = environment.episode, environment.simulator
    hint = _action_hint(environment)
    return {
        "observation": simulator.fact(episode.world, "look"),
        "inventory": simulator.fact(episode.world, "inventory"),
        "task_description": episode.description,
        "goal_progress": _goals(environment),
        "possible_actions": hint["possible_actions"][:10],
        "possible_objects": hint["possible_objects"][:10],
        "current_moves": episode.moves,
        "environment_info": _detail_answer(environment, episode.last),
    }
