"""What primitive moves are worth: our rules, and AgentGym's with its oddities.

Both share minigrid's reward at success, `1 - 0.9 * moves / limit`, where both are counted in
primitive moves, and both give 0 otherwise.
"""

import dataclasses
from typing import Protocol

COMPLETED = "\n The task is completed."
FAILED = "\n The task has failed."
OUT_OF_MOVES = "\n The limit of moves is reached."


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Where an episode stands.

    Attributes:
      reward: of the latest action.
      score: running score of the episode.
      done: the episode is over.
      note: what the observation says about it, after the description.
    """

    reward: float
    score: float
    done: bool
    note: str


START = Verdict(reward=0, score=0, done=False, note="")


class Scoring(Protocol):
    """How the outcome of moves becomes a verdict."""

    def ends_action(self, terminated: bool, truncated: bool) -> bool:
        """Whether the remaining moves of an action are left out after a move that ended so."""

    def after_moves(
        self, before: Verdict, reward: float, terminated: bool, truncated: bool
    ) -> Verdict:
        """The verdict after an action, from the outcome of its last move."""

    def after_nothing(self, before: Verdict) -> Verdict:
        """The verdict after an action that moved nothing, such as one that is not on offer."""

    def refusal(self, clear: str, compat: str | None) -> str:
        """Which wording of a refusal is shown."""


class OwnScoring:
    """Success, failure and the limit of moves end the episode; success is paid once."""

    def ends_action(self, terminated: bool, truncated: bool) -> bool:
        """Nothing happens after the end: the move that earned the reward is the last one."""
        return terminated or truncated

    def after_moves(
        self, before: Verdict, reward: float, terminated: bool, truncated: bool
    ) -> Verdict:
        """Done at any success, also a late one, and at failure or the limit with reward 0."""
        if terminated:
            note = COMPLETED if reward > 0 else FAILED
            return Verdict(reward, before.score + reward, True, note)
        return Verdict(0, before.score, truncated, OUT_OF_MOVES if truncated else "")

    def after_nothing(self, before: Verdict) -> Verdict:
        """No reward."""
        return dataclasses.replace(before, reward=0)

    def refusal(self, clear: str, compat: str | None) -> str:
        """Our wording."""
        return clear


class CompatScoring:
    """AgentGym's rules.

    A success worth 0.5 or less does not end the episode, nor do failure and the limit of moves;
    a refused action is paid the reward of the action before it once more; and an action goes on
    after the move that succeeded, so that `toggle and go through` loses the reward of opening.
    """

    def ends_action(self, terminated: bool, truncated: bool) -> bool:
        """Never."""
        return False

    def after_moves(
        self, before: Verdict, reward: float, terminated: bool, truncated: bool
    ) -> Verdict:
        """Says that the task is completed whenever minigrid ended it, also in failure."""
        note = COMPLETED if terminated else ""
        return Verdict(reward, before.score + reward, terminated and reward > 0.5, note)

    def after_nothing(self, before: Verdict) -> Verdict:
        """The latest reward again."""
        return dataclasses.replace(before, score=before.score + before.reward)

    def refusal(self, clear: str, compat: str | None) -> str:
        """AgentGym's wording where it differs."""
        return clear if compat is None else compat
