"""Agents of a rollout: a policy that samples in the decode rows of a sampler, or a text agent.

The replies of a text agent are parsed, limited and recorded like those of the policy.
"""

import dataclasses
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from agentgym_jax.client.answers import Observation
from agentgym_jax.rollout.episode import AgentTurn, Append, EpisodeRequest, Renderer
from agentgym_jax.sampling.options import episode_key
from agentgym_jax.sampling.sampler import Sampler

_WAIT_S = 0.25  # maximum wait for an answer of a text agent


@dataclasses.dataclass(frozen=True)
class Moment:
    """Input of a text agent for its turn.

    Attributes:
      request: Request of the episode.
      turn: Number of turns taken before this one.
      messages: Conversation so far; the last message is from the user.
      observation: Last observation of the environment.
    """

    request: EpisodeRequest
    turn: int
    messages: Sequence[Mapping[str, str]]
    observation: Observation

    @property
    def key(self) -> str:
        """Returns the key of the turn for random draws: seed, item, sample and turn number."""
        request = self.request
        return f"{request.seed}/{request.task.item_id}/{request.sample}/{self.turn}"


class AgentRows(Protocol):
    """Interface of the collector to an agent that acts in several episodes concurrently.

    An episode occupies a row from its first observation to its end.
    """

    @property
    def renderer(self) -> Renderer:
        """Returns the renderer of the conversations."""

    @property
    def free_rows(self) -> int:
        """Returns the number of episodes that can be opened at present."""

    @property
    def is_idle(self) -> bool:
        """Returns True if no row waits for its turn."""

    @property
    def num_sampled(self) -> int:
        """Returns the number of tokens sampled so far."""

    def open(self, request: EpisodeRequest) -> int:
        """Opens a row for an episode and returns its number."""

    def start_turn(self, row: int, append: Append, moment: Moment) -> None:
        """Queues the next turn of a row; `append` has the token ids added since the last turn."""

    def take_turns(self, serve: Callable[[float], bool]) -> Iterator[AgentTurn]:
        """Works on the queued turns and yields those that are finished.

        Args:
          serve: Function that waits for replies of environments, at most for the given seconds,
            and passes them to the rows. It returns True if further replies are pending.
        """

    def close(self, row: int) -> None:
        """Closes the row of an episode, even during a turn of the row."""

    def stop(self) -> None:
        """Cancels the running turns and closes all rows."""


class SampledRows:
    """Agent whose rows are the decode rows of a sampler with the weights of the policy."""

    def __init__(
        self, sampler: Sampler, renderer: Renderer, decode_text: Callable[[Sequence[int]], str]
    ):
        self.renderer = renderer
        self._sampler = sampler
        self._decode_text = decode_text

    @property
    def free_rows(self) -> int:
        """Implements `AgentRows.free_rows`."""
        return self._sampler.free_rows

    @property
    def is_idle(self) -> bool:
        """Implements `AgentRows.is_idle`."""
        return self._sampler.is_idle and not self._sampler.is_running

    @property
    def num_sampled(self) -> int:
        """Implements `AgentRows.num_sampled`."""
        return self._sampler.statistics.sampled

    def open(self, request: EpisodeRequest) -> int:
        """Implements `AgentRows.open`."""
        return self._sampler.open(_key(request), request.sampling)

    def start_turn(self, row: int, append: Append, moment: Moment) -> None:
        """Implements `AgentRows.start_turn`."""
        request = moment.request
        if append.kept is not None:
            self._sampler.rewind(row, append.kept)
        if append.branch:
            self._sampler.set_options(row, _key(request, append.branch), request.sampling)
        self._sampler.prefill(row, append.chunks)

    def take_turns(self, serve: Callable[[float], bool]) -> Iterator[AgentTurn]:
        """Implements `AgentRows.take_turns`; serves the environments during the decode call."""
        self._sampler.begin()
        while self._sampler.is_running and serve(0.001):
            pass
        for turn in self._sampler.finish():
            spoken = turn.tokens[:-1] if turn.is_stopped else turn.tokens
            text = self._decode_text(spoken.tolist())
            sampled = (turn.tokens, turn.logprobs, turn.version)
            yield AgentTurn(turn.row, text, turn.is_stopped, *sampled)

    def close(self, row: int) -> None:
        """Implements `AgentRows.close`."""
        self._sampler.close(row)

    def stop(self) -> None:
        """Implements `AgentRows.stop`."""
        self._sampler.finish()


def _key(request: EpisodeRequest, branch: int = 0) -> np.ndarray:
    continuation = "" if request.continuation is None else request.continuation.key
    keyed = (request.seed, request.step, request.task.item_id, request.sample, branch)
    return episode_key(*keyed, continuation=continuation)


class PromptTooLongError(Exception):
    """The conversation exceeds the agent's context. The episode ends as CONTEXT_FULL."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """One reply of a text agent; `is_stopped` is False if a token limit cut the reply."""

    text: str
    is_stopped: bool = True


class TextAgent(Protocol):
    """Agent that answers one turn at a time. Several threads call the agent for different episodes.

    Attributes:
      concurrency: Maximum number of concurrent episodes.
      may_wait: True if answers are slow, so that each running answer needs a thread.
    """

    concurrency: int
    may_wait: bool

    def answer(self, moment: Moment) -> Answer:
        """Returns the reply for the next turn.

        Raises:
          PromptTooLongError: The conversation has become too long.
          Exception: The agent cannot continue; the exception ends the rollout.
        """

    def close(self) -> None:
        """Cancels running requests."""


class _NoTokens:
    """Renderer for text agents, which read messages instead of tokens."""

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        return [[]]

    def continuation(self, messages: Sequence[Mapping[str, str]], ended_by_stop: bool) -> list[int]:
        return []

    def start_of(self, text: str, tokens: int) -> str:
        return text


class TextRows:
    """Rows of a text agent, each with one conversation."""

    renderer = _NoTokens()
    num_sampled = 0

    def __init__(self, agent: TextAgent):
        self.agent = agent
        # row numbers are not reused, so a late answer cannot reach another episode
        self._numbers = itertools.count()
        self._open: set[int] = set()
        self._asked: set[int] = set()
        self._answers: queue.SimpleQueue[tuple[int, Answer | Exception]] = queue.SimpleQueue()

    @property
    def free_rows(self) -> int:
        """Implements `AgentRows.free_rows`."""
        return self.agent.concurrency - len(self._open)

    @property
    def is_idle(self) -> bool:
        """Implements `AgentRows.is_idle`."""
        return not self._asked

    def open(self, request: EpisodeRequest) -> int:
        """Implements `AgentRows.open`."""
        row = next(self._numbers)
        self._open.add(row)
        return row

    def start_turn(self, row: int, append: Append, moment: Moment) -> None:
        """Implements `AgentRows.start_turn`."""
        self._asked.add(row)
        if self.agent.may_wait:
            # a daemon thread with a pending request does not delay the exit of the process
            threading.Thread(target=self._ask, args=(row, moment), daemon=True).start()
        else:
            self._ask(row, moment)

    def take_turns(self, serve: Callable[[float], bool]) -> Iterator[AgentTurn]:
        """Implements `AgentRows.take_turns`; raises the error of an agent that cannot continue."""
        may_wait = not serve(0.02 if self._answers.empty() else 0.0)
        while self._asked:
            try:
                row, result = self._answers.get(block=may_wait, timeout=_WAIT_S)
            except queue.Empty:
                return
            may_wait = False
            if row not in self._asked:
                continue
            self._asked.discard(row)
            if isinstance(result, PromptTooLongError):
                yield AgentTurn(row, "", overflow=str(result))
            elif isinstance(result, Exception):
                raise result
            else:
                yield AgentTurn(row, result.text, result.is_stopped)

    def close(self, row: int) -> None:
        """Implements `AgentRows.close`."""
        self._open.discard(row)
        self._asked.discard(row)

    def stop(self) -> None:
        """Implements `AgentRows.stop`."""
        self.agent.close()

    def _ask(self, row: int, moment: Moment) -> None:
        try:
            result: Answer | Exception = self.agent.answer(moment)
        except Exception as error:  # noqa: BLE001 - raised by take_turns in the collector's thread
            result = error
        self._answers.put((row, result))
