"""The generated questions of the package reasoning-gym, with its own scores as rewards."""

import re
from typing import Any

from agentgym_envs.adapters import seeded_tasks, serve
from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import ServedEnvironment

try:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS
except ImportError as error:
    raise SetupError(
        f"the package reasoning-gym is missing ({error}). Run: {extras.install('reasoning_gym')}"
    ) from error

# Version of the behaviour: changes when a text or the default selection changes. The questions and
# scores come from the package.
BEHAVIOUR = "1"
PACKAGE = "0.1.23"

# Questions of every category that a small model can read, are made within milliseconds, have an
# answer key with score 1 and at most 0.1 for nonsense, and hardly repeat between seeds.
DEFAULT = (
    "basic_arithmetic,bitwise_arithmetic,chain_sum,decimal_chain_sum,fraction_simplification,"
    "leg_counting,number_format,simple_equations,base_conversion,caesar_cipher,letter_counting,"
    "number_filtering,string_manipulation,word_sorting,ab,arc_1d,modulo_grid,needle_haystack,"
    "number_sequence,kakurasu,maze,mini_sudoku,simple_geometry,family_relationships,shortest_path,"
    "list_functions,aiw"
)
_EXECUTES_ANSWERS = (
    "binary_matrix codeio countdown intermediate_integration n_queens polynomial_multiplication "
    "puzzle24 simple_integration spiral_matrix string_insertion"
)
# Data sets that must not be trained on, with what each does.
_UNUSABLE = dict.fromkeys(_EXECUTES_ANSWERS.split(), "executes answers as Python code") | {
    "complex_arithmetic": "scores the answer nan as right",
    "composite": "is a mixture of other data sets",
    "game_of_life_halting": "scores every answer as right",
}
_TEST_SHARE = 0.1

INSTRUCTIONS = """\
Answer the question. Think first, then give the answer alone between <answer> and </answer>, in \
the form that the question asks for. Only the last pair of these marks counts."""

# Answers of the random agent, of which some are right by chance.
_GUESSES = [f"<answer>{word}</answer>" for word in ("0", "1", "2", "5", "Yes", "No", "True", "A")]
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
# Errors of the package's scoring functions for answers of another form than they expect.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Question:
    """A question with one or more attempts.

    The score is the package's best score of the attempts, so the reward of an attempt is its
    improvement. The episode ends after the right answer or the last attempt.
    """

    def __init__(self, attempts: int):
        self._left = attempts
        self._best = 0.0

    def reset(self, *, seed: int, options: dict[str, str]) -> tuple[str, dict[str, Any]]:
        """Generates the question, which depends on the data set and the seed."""
        self._data = reasoning_gym.create_dataset(options["dataset"], seed=seed, size=1)
        self._entry = self._data[0]
        return self._entry["question"], {}

    def step(self, answer: str | None) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Scores an answer; None stands for a text without one."""
        score = 0.0 if answer is None else self._score(answer)
        reward = max(0.0, score - self._best)
        self._best += reward
        self._left -= 1
        is_right = score >= 1
        text = "Right." if is_right else f"Not right; the score is {score:.2f}."
        if answer is None:
            text = "There is no <answer>...</answer> in this reply."
        return text, reward, is_right or not self._left, False, {}

    def key(self) -> str:
        """Returns the package's answer.

        Raises:
          NotImplementedError: The question has several right answers and the package gives none.
        """
        if self._entry["answer"] is None:
            raise NotImplementedError("the package has no answer to this question")
        return f"<answer>{self._entry['answer']}</answer>"

    def _score(self, answer: str) -> float:
        try:
            return min(1.0, max(0.0, float(self._data.score_answer(answer, self._entry))))
        except _UNREADABLE:
            return 0.0


def make_served_environment(
    *, datasets: str = DEFAULT, size: int = 200, attempts: int = 1
) -> ServedEnvironment:
    """Returns questions of reasoning-gym as a served environment.

    Args:
      datasets: Names of the package's data sets, separated by commas.
      size: Number of training questions of each data set; there are a tenth as many test questions.
      attempts: Number of answers to a question.

    Raises:
      SetupError: A name is unknown or unusable; a number is below 1.
    """
    names = [name.strip() for name in datasets.split(",")]
    for name in names:
        if name not in DATASETS:
            raise SetupError(
                f"reasoning-gym has no data set {name!r}; it has {', '.join(DATASETS)}"
            )
        if name in _UNUSABLE:
            raise SetupError(f"the data set {name!r} {_UNUSABLE[name]}; leave it out")
    if size < 1 or attempts < 1:
        raise SetupError(f"size={size} and attempts={attempts} must be at least 1")
    tasks = seeded_tasks(
        size, max(1, round(_TEST_SHARE * size)), [{"dataset": name} for name in names]
    )
    return serve(
        lambda: Question(attempts),
        tasks,
        name="reasoning_gym",
        version=f"{BEHAVIOUR}-{PACKAGE}",
        instructions=INSTRUCTIONS,
        max_turns=attempts,
        action_format="raw",
        parse=lambda text: (_ANSWER.findall(text) or [None])[-1],
        refusal="",
        expert=Question.key,
        valid_actions=lambda question: _GUESSES,
    )
