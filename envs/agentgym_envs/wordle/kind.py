"""Wordle as a server: what it says about itself and the shape of its answers."""

from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.kind import Answers, EnvironmentKind, ExtraRoute, IdBody
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.wordle.environment import (
    INVALID,
    WordleEnvironment,
    make_compat_environment,
    make_environment,
)
from agentgym_envs.wordle.tasks import task_manifest

# Changes when a word, a task or a text changes.
BEHAVIOUR = "1"
MAX_TURNS = 8

INSTRUCTIONS = """\
You have six guesses to find a hidden word of five letters; the fewer you need, the better. The \
first observation lists all words that it can be. Guess a word of the list, with its letters \
separated by spaces, such as: s h i r e

The answer to a guess has one letter for each of its letters:
- g: the hidden word has this letter, in this place.
- y: the hidden word has this letter, but not in this place.
- b: the hidden word does not have this letter.

A guess that is not on the list is answered with "invalid word" and is used up.

Reply in this form, with a single guess:
Thought: what the answers so far tell about the word.
Action: the five letters"""


class SeedBody(IdBody):
    """Body of `POST /reset`."""

    seed: int


def make_kind() -> EnvironmentKind:
    """Wordle for the server."""
    return EnvironmentKind(
        spec=EnvironmentSpec(
            name="wordle",
            version=BEHAVIOUR,
            instructions=INSTRUCTIONS,
            action_format="react",
            num_tasks=len(task_manifest()),
            manifest_sha256=manifest.sha256(task_manifest()),
            max_turns=MAX_TURNS,
            refusal=INVALID,
            success_score=1.0,
        ),
        banner="This is environment LMRL-Gym.",
        factory=make_environment,
        compat_factory=make_compat_environment,
        tasks=task_manifest,
        answers=Answers(
            create=lambda session_id, first: {"id": session_id},
            reset=lambda session_id, result: {"id": session_id, "observation": result.observation},
            step=_step_answer,
            observation=_observation_answer,
        ),
        create_body=None,
        reset_body=SeedBody,
        # AgentGym's client asks for the vocabulary before its first reset.
        resets_on_create=True,
        compat_refused_when_done=frozenset({"step", "observation", "detail", "filtered_vocab"}),
        extra_routes=(
            ExtraRoute("/filtered_vocab", "GET", WordleEnvironment.listed_words),
            ExtraRoute("/detail", "GET", WordleEnvironment.detail),
        ),
        path_prefix="/wordle",
        task_field="seed",
    )


def _step_answer(result: StepResult) -> dict[str, Any]:
    return {"observation": result.observation, "reward": result.reward, "done": result.done}


def _observation_answer(environment: Environment, last: StepResult | None) -> str:
    assert last is not None, "a wordle session is reset when it is created"
    return last.observation
