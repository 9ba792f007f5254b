"""Wordle as a served environment: its spec, routes and answer bodies."""

from agentgym_envs.base import manifest
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    ExtraRoute,
    IdBody,
    ServedEnvironment,
)
from agentgym_envs.wordle.environment import INVALID, WordleEnvironment
from agentgym_envs.wordle.rules import CompatRules, Rules
from agentgym_envs.wordle.tasks import task_manifest

# Version of the behaviour: changes when a word, a task or a text changes.
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


def make_served_environment() -> ServedEnvironment:
    """Returns Wordle as a served environment."""
    return ServedEnvironment(
        spec=EnvironmentSpec(
            name="wordle",
            version=BEHAVIOUR,
            instructions=INSTRUCTIONS,
            action_format="react",
            num_tasks=len(task_manifest()),
            manifest_sha256=manifest.sha256(task_manifest()),
            max_turns=MAX_TURNS,
            refusal=INVALID,
        ),
        banner="This is environment LMRL-Gym.",
        factory=lambda: WordleEnvironment(Rules()),
        compat_factory=lambda: WordleEnvironment(CompatRules()),
        tasks=task_manifest,
        answers=Answers(
            reset=lambda session_id, result: {"id": session_id, "observation": result.observation}
        ),
        reset_body=SeedBody,
        # AgentGym's client requests the vocabulary before its first reset.
        resets_on_create=True,
        compat_refused_when_done=frozenset({"step", "observation", "detail", "filtered_vocab"}),
        extra_routes=(
            ExtraRoute("/filtered_vocab", "GET", WordleEnvironment.listed_words),
            ExtraRoute("/detail", "GET", WordleEnvironment.detail),
        ),
        path_prefix="/wordle",
        task_field="seed",
    )
