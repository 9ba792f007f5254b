"""State machine of one episode, without a model or a network.

The caller passes events (`begin`, `observe`, `act`, `fail`) and executes the returned commands:
append tokens to the sampler, send an action to the environment, or stop.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.token_lists import TokenLists, token_fields
from agentgym_jax.episodes.trajectory import Outcome, TokenSource, Trajectory, Turn
from agentgym_jax.sampling.options import SamplingOptions

# Values of `show_turn_budget`: observations mention no limit, the turn limit in the first one, or
# the number of remaining turns in each.
TURN_BUDGETS = ("none", "start", "every_turn")


class Renderer(Protocol):
    """Interface of the chat rendering (text/chat.py, and text/tool_renderer.py for tools)."""

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """Returns the token ids up to the first turn of the model, in chunks."""

    def continuation(
        self, messages: Sequence[Mapping[str, str]], ended_by_stop: bool
    ) -> list[int] | None:
        """Returns the token ids between the last model turn and the next one.

        Returns None if the template changes the last turn; `opening` then begins a new branch.
        """

    def start_of(self, text: str, tokens: int) -> str:
        """Returns the start of a user's text that certainly has more than `tokens` tokens."""


@dataclasses.dataclass(frozen=True)
class EpisodeLimits:
    """Limits that cut an episode.

    Attributes:
      max_turns: Maximum number of turns.
      max_tokens: Maximum number of tokens of each branch. An agent program may have as
        many branches as `max_turns`.
      max_parse_errors: Maximum number of parse errors in an episode; one more ends the episode.
      keep_last_observation: True to record the observation after the last allowed turn, from which
        a critic can estimate the value of the cut episode.
    """

    max_turns: int
    max_tokens: int
    max_parse_errors: int
    keep_last_observation: bool = False


@dataclasses.dataclass(frozen=True)
class Continuation:
    """Recorded beginning of an episode that is repeated before the agent takes a turn.

    Attributes:
      recorded: Recorded episode; it has one branch and at least `turn` turns.
      turn: Number of the first turn that is not repeated, from 1.
      forced: Turn that replaces the recorded one, and its action; None if the agent takes the turn.
      number: Number of the continuation; 0 has the random key of the recorded episode.
    """

    recorded: Trajectory
    turn: int
    forced: "tuple[AgentTurn, ParsedAction] | None" = None
    number: int = 0

    @property
    def key(self) -> str:
        """Returns the text that tells the random key from that of the recorded episode."""
        return f"turn {self.turn}/{self.number}" if self.number else ""


@dataclasses.dataclass(frozen=True)
class EpisodeRequest:
    """Request for one episode. Task, sample, seed and step define the random key.

    Attributes:
      task: Task of the episode.
      sample: Number of this sample among those of the task.
      seed: Seed of the run.
      step: Number of training steps done before that of the episode.
      limits: Limits that cut the episode.
      sampling: Sampling options of the sampler.
      turn_versions: Version of the weights that each turn waits for; empty if no turn waits.
      continuation: Recorded beginning to repeat (continuation.py); None for a new episode.
    """

    task: Task
    sample: int
    seed: int
    step: int
    limits: EpisodeLimits
    sampling: SamplingOptions
    turn_versions: tuple[int, ...] = ()
    continuation: Continuation | None = None


@dataclasses.dataclass(frozen=True)
class AgentTurn:
    """Finished turn of an agent.

    Attributes:
      row: Row of the episode.
      text: Reply, without the stop token.
      is_stopped: True if the turn ended by itself; False if a limit cut the turn.
      tokens: Sampled token ids, including the stop token if it was sampled; empty for a text agent.
      logprobs: Log-probabilities of `tokens`.
      version: Version of the weights that sampled the turn.
      overflow: Error message if the conversation exceeds the agent's context; otherwise None.
    """

    row: int
    text: str
    is_stopped: bool = True
    tokens: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    logprobs: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.float32))
    version: int = 0
    overflow: str | None = None


@dataclasses.dataclass(frozen=True)
class Append:
    """Command to append tokens to the agent's row and to let the agent take a turn.

    Attributes:
      chunks: Token ids to append.
      branch: Number of the branch of the conversation.
      kept: Number of tokens of the row that the branch begins with; None to keep all.
    """

    chunks: list[list[int]]
    branch: int = 0
    kept: int | None = None


@dataclasses.dataclass(frozen=True)
class Send:
    """Command to send this action to the environment."""

    action: str


@dataclasses.dataclass(frozen=True)
class Finish:
    """Command to stop: the episode is over, and `Episode.trajectory` returns its record."""

    outcome: Outcome


Command = Append | Send | Finish


class Episode:
    """Builds the tokens, turns and messages of one episode."""

    def __init__(
        self,
        request: EpisodeRequest,
        *,
        renderer: Renderer,
        preamble: Sequence[Mapping[str, str]],
        show_turn_budget: str = "none",
        result_role: str = "user",
    ):
        """Starts an empty episode; answers of the environment are messages of `result_role`."""
        self._request = request
        self._renderer = renderer
        self._limits = request.limits
        self._show_turn_budget = show_turn_budget
        self._result_role = result_role
        self._first_observation = ""
        self._messages: list[Mapping[str, str]] = list(preamble)
        self._branches = [TokenLists()]
        self._opening: list[list[int]] = []
        self._turns: list[Turn] = []
        self._last = Observation("", reward=0.0, score=0.0, done=False, success=False)
        self._error = ""
        self._outcome: Outcome | None = None

    @property
    def num_turns(self) -> int:
        """Returns the number of turns taken."""
        return len(self._turns)

    @property
    def messages(self) -> tuple[Mapping[str, str], ...]:
        """Returns the conversation so far."""
        return tuple(self._messages)

    def begin(self, observation: str) -> Command:
        """Starts the conversation with the first observation."""
        self._first_observation = observation
        shown = self._shown(observation)
        self._messages.append({"role": "user", "content": shown})
        start = {"role": "user", "content": self._renderer.start_of(shown, self._limits.max_tokens)}
        chunks = self._opening = self._renderer.opening([*self._messages[:-1], start])
        for chunk in chunks:
            self._branch.extend(chunk, TokenSource.PROMPT)
        if len(self._branch) >= self._limits.max_tokens:
            return self._finish(Outcome.CONTEXT_FULL)
        return Append(chunks)

    def resume(self) -> Append:
        """Returns the command with which the next turn continues in another, empty row.

        The opening is a separate part, so that rows of a group can share it.
        """
        tokens = self._branch.tokens
        if len(self._branches) > 1:
            return self._append([list(tokens)])
        return self._append([*self._opening, tokens[sum(map(len, self._opening)) :]])

    def act(self, turn: AgentTurn, parsed: ParsedAction) -> Command:
        """Records a turn of the agent and the result of parsing its text."""
        start = sum(map(len, self._branches))
        self._branch.extend(
            turn.tokens.tolist(), TokenSource.ACTION, turn.logprobs.tolist(), turn.version
        )
        self._messages.append({"role": "assistant", "content": turn.text})
        self._turns.append(
            Turn(
                action_start=start,
                action_stop=start + len(turn.tokens),
                text=turn.text,
                action=parsed.action,
                observation="",
                reward=0.0,
                is_cut=not turn.is_stopped,
            )
        )
        if parsed.action is not None:
            return Send(parsed.action)
        parse_errors = sum(turn.action is None for turn in self._turns)
        if parse_errors > self._limits.max_parse_errors:
            return self._finish(Outcome.PARSE_ERRORS)
        return self._continue(parsed.problem or "", "user")

    def observe(self, observation: Observation) -> Command:
        """Records the answer of the environment to the last action."""
        self._turns[-1] = dataclasses.replace(
            self._turns[-1],
            observation=observation.text,
            reward=observation.reward,
            is_rejected=observation.is_rejection,
            shows_state=observation.shows_state,
        )
        self._last = observation
        if observation.done:
            return self._finish(Outcome.SUCCESS if observation.success else Outcome.FAILURE)
        return self._continue(observation.text, self._result_role)

    def fail(self, outcome: Outcome, error: str) -> Command:
        """Ends the episode without a result, such as after a failure of its environment."""
        self._error = error
        return self._finish(outcome)

    def trajectory(self, *, attempts: int, seconds: float) -> Trajectory:
        """Returns the record of a finished episode."""
        if self._outcome is None:
            raise ValueError(f"{self._request.task.item_id}: the episode has not ended yet")
        return Trajectory(
            item_id=self._request.task.item_id,
            sample=self._request.sample,
            step=self._request.step,
            outcome=self._outcome,
            score=self._last.score,
            success=self._last.success,
            **token_fields(self._branches),
            turns=tuple(self._turns),
            messages=tuple(self._messages),
            error=self._error,
            attempts=attempts,
            seconds=seconds,
            score_scale=self._last.score_scale,
            first_observation=self._first_observation,
        )

    def _continue(self, observation: str, role: str) -> Command:
        """Appends the next observation for the model, unless a limit is reached."""
        is_last = len(self._turns) >= self._limits.max_turns
        if is_last and not self._limits.keep_last_observation:
            return self._finish(Outcome.HORIZON)
        shown = self._shown(observation)
        if len(self._renderer.start_of(shown, self._limits.max_tokens)) < len(shown):
            return self._finish(Outcome.HORIZON if is_last else Outcome.CONTEXT_FULL)
        messages = [*self._messages, {"role": role, "content": shown}]
        chunk = self._renderer.continuation(messages, not self._turns[-1].is_cut)
        if chunk is None:
            return self._finish(Outcome.HORIZON) if is_last else self._begin_branch(messages)
        if len(self._branch) + len(chunk) >= self._limits.max_tokens:
            return self._finish(Outcome.HORIZON if is_last else Outcome.CONTEXT_FULL)
        self._messages = messages
        self._branch.extend(chunk, TokenSource.OBSERVATION)
        return self._finish(Outcome.HORIZON) if is_last else self._append([chunk])

    def _begin_branch(self, messages: list[Mapping[str, str]]) -> Command:
        """Continues in a new branch, because the chat template changes the last turn."""
        before = self._branch.tokens
        tokens = sum(self._renderer.opening(messages), [])
        if len(tokens) >= self._limits.max_tokens:
            return self._finish(Outcome.CONTEXT_FULL)
        self._messages = messages
        self._branches.append(TokenLists())
        self._branch.extend(tokens, TokenSource.PROMPT)
        # The last token of a row is not in its cache, and one token must be left to compute.
        longest = min(len(before), len(tokens)) - 1
        kept = len(os.path.commonprefix([before[:longest], tokens[:longest]]))
        return self._append([tokens[kept:]], kept)

    def _append(self, chunks: list[list[int]], kept: int | None = None) -> Append:
        return Append(chunks, len(self._branches) - 1, kept)

    @property
    def _branch(self) -> TokenLists:
        """Returns the tokens of the present branch."""
        return self._branches[-1]

    def _shown(self, observation: str) -> str:
        """Returns the observation with the turn budget added, as the agent reads it."""
        turns, max_turns = len(self._turns), self._limits.max_turns
        if self._show_turn_budget == "every_turn":
            return f"{observation}\nTurns left: {max_turns - turns}."
        if self._show_turn_budget == "start" and not turns:
            return f"{observation}\nTurns for this task: {max_turns}."
        return observation

    def _finish(self, outcome: Outcome) -> Finish:
        self._outcome = outcome
        return Finish(outcome)
