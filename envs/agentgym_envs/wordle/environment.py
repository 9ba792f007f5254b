"""One game of Wordle behind the text protocol."""

import dataclasses
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.wordle.expert import best_guess
from agentgym_envs.wordle.rules import CompatRules, Hide, OurRules, Rules
from agentgym_envs.wordle.words import FOUND, VOCABULARY, consistent, feedback, spaced

MAX_GUESSES = 6
INVALID = "invalid word"


@dataclasses.dataclass
class Game:
    """One episode; its lists grow with every action.

    Attributes:
      data_idx: the task; the seed of the hidden words by AgentGym's rules.
      hide: chooses the hidden word.
      candidates: words that all answers so far allow, in the order of the vocabulary.
      actions: all actions as they came.
      answers: the observation after each action.
      score: 1 once the word was found.
    """

    data_idx: int
    hide: Hide
    candidates: list[str] = dataclasses.field(default_factory=lambda: list(VOCABULARY))
    actions: list[str] = dataclasses.field(default_factory=list)
    answers: list[str] = dataclasses.field(default_factory=list)
    score: int = 0

    @property
    def done(self) -> bool:
        """Whether the word was found or all guesses are used."""
        return self.score == 1 or len(self.actions) == MAX_GUESSES


class WordleEnvironment(Environment):
    """Six guesses; an invalid word is one of them.

    Args:
      rules: ours, or AgentGym's.
    """

    def __init__(self, rules: Rules):
        self._rules = rules
        self._game: Game | None = None

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; the game before goes on.
        """
        self._game = Game(data_idx, self._rules.hide(data_idx))
        return StepResult(self._rules.start, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Answers one guess; reward 1 and the end if it is the hidden word.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset, FINISHED after the end.
        """
        game = self._playing()
        guess = self._rules.read(action)
        answer = self._answer(game, guess) if guess in VOCABULARY else None
        game.score = int(answer == FOUND)
        game.actions.append(action)
        game.answers.append(INVALID if answer is None else f"{spaced(answer)}\n")
        return StepResult(game.answers[-1], reward=game.score, score=game.score, done=game.done)

    def expert_action(self) -> str:
        """The guess after which the fewest words remain; it knows the answers so far, no more."""
        return spaced(best_guess(self._playing().candidates))

    def valid_actions(self) -> list[str]:
        """The words of the vocabulary that were not tried yet."""
        game = self._playing()
        tried = {self._rules.read(action) for action in game.actions}
        return [spaced(word) for word in VOCABULARY if word not in tried]

    def listed_words(self) -> list[str]:
        """What `GET /filtered_vocab` tells."""
        return self._rules.listed(self._started().candidates)

    def detail(self) -> dict[str, Any]:
        """What `GET /detail` tells."""
        game = self._started()
        return {
            "done": game.done,
            "reward": game.score,
            "deleted": False,
            "seed": game.data_idx,
            "observation": game.answers[-1] if game.answers else self._rules.start,
        }

    def state(self) -> dict[str, Any]:
        """Task, guesses with their answers, and the words that can still be the hidden one."""
        if self._game is None:
            return {}
        game = self._game
        return {
            "data_idx": game.data_idx,
            "guesses": [
                {"guess": action, "answer": answer.strip()}
                for action, answer in zip(game.actions, game.answers, strict=True)
            ],
            "guesses_left": MAX_GUESSES - len(game.actions),
            "candidates": list(game.candidates),
        }

    def snapshot(self) -> dict[str, Any]:
        """Task and actions; the rest follows from them.

        Raises:
          EnvironmentFault: NOT_RESET.
        """
        game = self._started()
        return {"data_idx": game.data_idx, "actions": list(game.actions)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Goes on from a snapshot."""
        self.reset(snapshot["data_idx"])
        for action in snapshot["actions"]:
            self.step(action)

    def _answer(self, game: Game, guess: str) -> str:
        answer = feedback(guess, game.hide(game.candidates))
        game.candidates = consistent(game.candidates, guess, answer)
        return answer

    def _started(self) -> Game:
        if self._game is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "wordle: call reset with the index of a task first"
            )
        return self._game

    def _playing(self) -> Game:
        game = self._started()
        if game.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "wordle: this episode is over; reset to start another one"
            )
        return game


def make_environment() -> WordleEnvironment:
    """A game by our rules."""
    return WordleEnvironment(OurRules())


def make_compat_environment() -> WordleEnvironment:
    """A game by the rules of AgentGym's server."""
    return WordleEnvironment(CompatRules())
