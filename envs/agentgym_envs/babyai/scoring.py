"""Rewards and ends of episodes under our rules and under AgentGym's.

Both sets of rules give minigrid's reward at success, `1 - 0.9 * moves / limit`, and 0 otherwise.
Moves and limit are counted in primitive moves.
"""

import dataclasses

COMPLETED = "\n The task is completed."
FAILED = "\n The task has failed."
OUT_OF_MOVES = "\n The limit of moves is reached."


@dataclasses.dataclass(frozen=True)
class Verdict:
    """State of an episode after an action.

    Attributes:
      note: Sentence about the end of the episode, appended to the description in the observation.
    """

    reward: float
    score: float
    done: bool
    note: str


START = Verdict(reward=0, score=0, done=False, note="")


class Scoring:
    """Our rules: success, failure and the move limit end the episode; success is rewarded once."""

    def ends_action(self, terminated: bool, truncated: bool) -> bool:
        """Returns True if an action skips its remaining moves after a move with this result.

        The move that earned the reward is then the last one.
        """
        return terminated or truncated

    def after_moves(
        self, before: Verdict, reward: float, terminated: bool, truncated: bool
    ) -> Verdict:
        """Returns the verdict after an action, from the result of its last move.

        The episode ends at every success, even a late one, and with reward 0 at failure or the
        limit.
        """
        if terminated:
            note = COMPLETED if reward > 0 else FAILED
            return Verdict(reward, before.score + reward, True, note)
        return Verdict(0, before.score, truncated, OUT_OF_MOVES if truncated else "")

    def after_nothing(self, before: Verdict) -> Verdict:
        """Returns the verdict after an action without moves, which has no reward."""
        return dataclasses.replace(before, reward=0)

    def refusal(self, clear: str, compat: str | None) -> str:
        """Returns the wording of a rejection under these rules."""
        return clear


class CompatScoring(Scoring):
    """AgentGym's rules.

    A success worth 0.5 or less does not end the episode; neither do failure and the move limit. A
    rejected action pays the reward of the previous action again. An action continues after the
    successful move, so `toggle and go through` loses the reward for opening the door.
    """

    def ends_action(self, terminated: bool, truncated: bool) -> bool:
        """Returns False, because later moves are always executed."""
        return False

    def after_moves(
        self, before: Verdict, reward: float, terminated: bool, truncated: bool
    ) -> Verdict:
        """Returns the verdict; a failure has the same note as a success, COMPLETED."""
        note = COMPLETED if terminated else ""
        return Verdict(reward, before.score + reward, terminated and reward > 0.5, note)

    def after_nothing(self, before: Verdict) -> Verdict:
        """Returns the verdict with the latest reward paid again."""
        return dataclasses.replace(before, score=before.score + before.reward)

    def refusal(self, clear: str, compat: str | None) -> str:
        """Returns AgentGym's wording if it differs from ours."""
        return clear if compat is None else compat
