"""Episodes that repeat a recorded beginning and then continue with turns of the agent.

The repeated turns are sent to the environment only, whose answers must equal the recorded ones. The
agent gets the recorded tokens in one prefill, so no text is encoded again.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from agentgym_jax.client.answers import Observation
from agentgym_jax.episodes.token_lists import TokenLists
from agentgym_jax.episodes.trajectory import ARRAYS, Trajectory
from agentgym_jax.rollout.episode import Append, Command, Episode, EpisodeRequest, Send

_SHOWN = 40  # characters shown before and after the first difference of two texts


class RecordDiffersError(RuntimeError):
    """The environment answers differently than when the episode was recorded."""


def describe_difference(recorded: str, found: str) -> str:
    """Describes the first difference of two texts on one line."""
    pairs = itertools.zip_longest(recorded, found)
    at = next(i for i, (old, new) in enumerate(pairs) if old != new)
    start = max(0, at - _SHOWN)
    old, new = (text[start : at + _SHOWN] for text in (recorded, found))
    return f"at character {at} the record has {old!r}, the environment now answers {new!r}"


def opening_messages(recorded: Trajectory, turn: int) -> int:
    """Returns the number of messages before the answer of a turn; turns are numbered from 1."""
    answers = [i for i, message in enumerate(recorded.messages) if message["role"] == "assistant"]
    return answers[len(answers) - len(recorded.turns) + turn - 1]


class ContinuedEpisode(Episode):
    """Episode whose first turns are those of a record; its request has a `continuation`.

    Raises:
      RecordDiffersError: An answer of the environment differs from the recorded one.
    """

    def __init__(self, request: EpisodeRequest, **options: Any):
        super().__init__(request, **options)
        assert request.continuation is not None, "a continued episode needs a recorded beginning"
        self._continuation = request.continuation
        recorded, turn = request.continuation.recorded, request.continuation.turn
        stop = recorded.turns[turn - 1].action_start
        self._turns = list(recorded.turns[: turn - 1])
        self._messages = list(recorded.messages[: opening_messages(recorded, turn)])
        lists = {name: getattr(recorded, name)[:stop].tolist() for name in ARRAYS}
        self._branches = [TokenLists(**lists)]
        self._actions = [i for i, turn in enumerate(self._turns) if turn.action is not None]
        self._sent: int | None = None  # index of the repeated turn that waits for its answer
        self._is_prefilled = False

    def begin(self, observation: str) -> Command:
        """Compares the first observation with the record and repeats the first action."""
        recorded = self._continuation.recorded.first_observation
        self._first_observation = observation
        if recorded is not None:  # records of older runs lack it
            self._compare("the first observation", recorded, observation)
        return self._repeat()

    def observe(self, observation: Observation) -> Command:
        """Compares the answer to a repeated action with the record; records other answers."""
        if self._sent is None:
            return super().observe(observation)
        recorded, place = self._turns[self._sent], f"turn {self._sent + 1}"
        self._compare(place, recorded.observation, observation.text)
        if observation.reward != recorded.reward:
            self._differs(
                place, f"the reward was {recorded.reward:g} and is now {observation.reward:g}"
            )
        if observation.done:
            self._differs(place, "the environment now ends the episode after it")
        self._last, self._sent = observation, None
        return self._repeat()

    def _repeat(self) -> Command:
        """Sends the next action of the record; after the last one the agent takes its turn."""
        if self._actions:
            self._sent = self._actions.pop(0)
            return Send(self._turns[self._sent].action or "")
        if self._continuation.forced is not None:
            return self.act(*self._continuation.forced)
        return self._append([])

    def _append(self, chunks: list[list[int]], kept: int | None = None) -> Append:
        """Returns the command for the next turn; the first one has all tokens of the branch."""
        if self._is_prefilled:
            return super()._append(chunks, kept)
        self._is_prefilled = True
        if len(self._branches) > 1:  # the chat template has changed the forced turn
            return super()._append([list(self._branch.tokens)])
        tokens = self._branch.tokens
        stops = [*self._prefix_stops(), len(tokens)]
        return super()._append([tokens[i:j] for i, j in itertools.pairwise(stops)])

    def _prefix_stops(self) -> Sequence[int]:
        """Returns the cuts of the prefix, from 0.

        Observations are prefilled in the shapes of the recorded episode. Continuations from several
        turns share the chunks of their common beginning.
        """
        recorded, stop = self._continuation.recorded, len(self._branch)
        opening = self._messages[: opening_messages(recorded, 1)]
        ends = list(itertools.accumulate(map(len, self._renderer.opening(opening))))
        cuts = {0, stop - 1} | (
            set(ends[:-1]) if ends[-1] == recorded.turns[0].action_start else set()
        )
        for turn in self._turns:
            cuts |= {turn.action_start - 1, turn.action_stop - 1}
        return sorted(cuts)

    def _compare(self, place: str, recorded: str, found: str) -> None:
        if found != recorded:
            self._differs(place, describe_difference(recorded, found))

    def _differs(self, place: str, difference: str) -> None:
        raise RecordDiffersError(f"{self._request.task.item_id}, {place}: {difference}")
