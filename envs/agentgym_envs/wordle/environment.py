"""Wordle as an environment with text observations and actions."""

import dataclasses
from typing import Any

from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.wordle.expert import best_guess
from agentgym_envs.wordle.rules import Hide, Rules
from agentgym_envs.wordle.words import FOUND, VOCABULARY, consistent, feedback, spaced

MAX_GUESSES = 6
INVALID = "invalid word"


@dataclasses.dataclass
class Game:
    """State of one episode, which every action changes.

    Attributes:
      data_idx: Index of the task; under AgentGym's rules, the seed of the hidden words.
      hide: Function that chooses the hidden word.
      candidates: Words that agree with all feedback so far, in the order of the vocabulary.
      answers: Observation after each action.
      score: 1 once the word was found, else 0.
    """

    data_idx: int
    hide: Hide
    candidates: list[str] = dataclasses.field(default_factory=lambda: list(VOCABULARY))
    actions: list[str] = dataclasses.field(default_factory=list)
    answers: list[str] = dataclasses.field(default_factory=list)
    score: int = 0

    @property
    def done(self) -> bool:
        """Returns True if the word was found or all guesses are used."""
        return self.score == 1 or len(self.actions) == MAX_GUESSES


class WordleEnvironment(ReplayedEnvironment[Game]):
    """Wordle with six guesses; an invalid word also counts as a guess."""

    name = "wordle"

    def __init__(self, rules: Rules):
        self._rules = rules

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task."""
        self._episode = Game(data_idx, self._rules.hide(data_idx))
        return StepResult(self._rules.start, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Answers one guess. If it is the hidden word, the reward is 1 and the episode ends."""
        game = self.playing
        guess = self._rules.read(action)
        answer = self._answer(game, guess) if guess in VOCABULARY else None
        game.score = int(answer == FOUND)
        game.actions.append(action)
        game.answers.append(INVALID if answer is None else f"{spaced(answer)}\n")
        return StepResult(game.answers[-1], reward=game.score, score=game.score, done=game.done)

    def expert_action(self) -> str:
        """Returns the guess after which the fewest words remain, given only the feedback so far."""
        return spaced(best_guess(self.playing.candidates))

    def valid_actions(self) -> list[str]:
        """Returns the words of the vocabulary that were not tried yet."""
        game = self.playing
        tried = {self._rules.read(action) for action in game.actions}
        return [spaced(word) for word in VOCABULARY if word not in tried]

    def listed_words(self) -> list[str]:
        """Returns the answer to `GET /filtered_vocab`."""
        return self._rules.listed(self.episode.candidates)

    def detail(self) -> dict[str, Any]:
        """Returns the answer to `GET /detail`."""
        game = self.episode
        return {
            "done": game.done,
            "reward": game.score,
            "deleted": False,
            "seed": game.data_idx,
            "observation": game.answers[-1] if game.answers else self._rules.start,
        }

    def state(self) -> dict[str, Any]:
        """Returns the task, the guesses with their feedback, and the words still possible."""
        if self._episode is None:
            return {}
        game = self._episode
        return {
            "data_idx": game.data_idx,
            "guesses": [
                {"guess": action, "answer": answer.strip()}
                for action, answer in zip(game.actions, game.answers, strict=True)
            ],
            "guesses_left": MAX_GUESSES - len(game.actions),
            "candidates": list(game.candidates),
        }

    def _answer(self, game: Game, guess: str) -> str:
        answer = feedback(guess, game.hide(game.candidates))
        game.candidates = consistent(game.candidates, guess, answer)
        return answer
