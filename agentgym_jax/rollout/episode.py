"""One episode as a state machine: it knows no model and no network.

The caller feeds it what happened (`observe`, `act`, `fail`) and does what it answers:
append tokens to the sampler, send an action to the environment, or stop.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from agentgym_jax.data.tasks import Task
from agentgym_jax.rollout import budget
from agentgym_jax.trajectory import Outcome, TokenSource, Trajectory, Turn


class Renderer(Protocol):
    """Append-only chat rendering (text/chat.py)."""

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """Chunks of token ids up to where the model begins to speak."""

    def observation(self, text: str) -> list[int]:
        """A user message and the header of the next model turn."""

    def close_turn(self, ended_by_stop: bool) -> list[int]:
        """What the template puts after a model turn."""


@dataclasses.dataclass(frozen=True)
class EpisodeLimits:
    """When an episode is cut.

    Attributes:
      max_turns: the horizon, in turns.
      max_tokens: tokens of the whole episode.
      max_invalid_actions: unreadable actions after which it ends; 0 ends at the first.
      keep_last_observation: at the horizon what the model would see next is recorded, so that a
        critic can say what the cut episode was still worth. Nobody answers it.
    """

    max_turns: int
    max_tokens: int
    max_invalid_actions: int
    keep_last_observation: bool = False


@dataclasses.dataclass(frozen=True)
class Append:
    """Give these chunks to the sampler and sample a turn."""

    chunks: list[list[int]]


@dataclasses.dataclass(frozen=True)
class Send:
    """Send this action to the environment."""

    action: str


@dataclasses.dataclass(frozen=True)
class Finish:
    """The episode is over; `Episode.trajectory` has the record."""

    outcome: Outcome


Command = Append | Send | Finish


class Episode:
    """Collects tokens, turns and messages of one episode."""

    def __init__(
        self,
        task: Task,
        sample: int,
        step: int,
        *,
        renderer: Renderer,
        preamble: Sequence[Mapping[str, str]],
        limits: EpisodeLimits,
        tell_budget: str = "none",
    ):
        """Starts before the first observation.

        Args:
          task: what is to be done.
          sample: which sample of the task.
          step: optimiser step of the weights.
          renderer: text to token ids.
          preamble: messages before the first observation (instructions).
          limits: when to stop.
          tell_budget: what the agent is told of its turns (budget.py).
        """
        self.task = task
        self._sample = sample
        self._step = step
        self._renderer = renderer
        self._limits = limits
        self._tell_budget = tell_budget
        self._first_observation = ""
        self._messages: list[Mapping[str, str]] = list(preamble)
        self._tokens: list[int] = []
        self._sources: list[int] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._turns: list[Turn] = []
        self._ended_by_stop = True
        self._invalid_actions = 0
        self._score = 0.0
        self._score_scale = 1.0
        self._success = False
        self._error = ""
        self._outcome: Outcome | None = None

    @property
    def num_turns(self) -> int:
        """Turns taken so far."""
        return len(self._turns)

    def begin(self, observation: str) -> Command:
        """The environment was reset and shows `observation`."""
        self._first_observation = observation
        self._messages.append({"role": "user", "content": self._shown(observation)})
        chunks = self._renderer.opening(self._messages)
        for chunk in chunks:
            self._extend(chunk, TokenSource.PROMPT)
        if len(self._tokens) >= self._limits.max_tokens:
            return self._finish(Outcome.CONTEXT_FULL)
        return Append(chunks)

    def act(
        self,
        tokens: np.ndarray,
        logprobs: np.ndarray,
        *,
        is_stopped: bool,
        version: int,
        text: str,
        action: str | None,
        problem: str,
    ) -> Command:
        """The model sampled a turn.

        Args:
          tokens: sampled ids, with the stop token if there is one.
          logprobs: of these.
          is_stopped: the turn ended by itself.
          version: version of the weights.
          text: the turn as text, without the stop token.
          action: what can be sent; None if the text has no readable action.
          problem: told to the model when `action` is None.
        """
        start = len(self._tokens)
        self._extend(tokens.tolist(), TokenSource.ACTION, logprobs.tolist(), version)
        self._ended_by_stop = is_stopped
        self._messages.append({"role": "assistant", "content": text})
        self._turns.append(
            Turn(
                action_start=start,
                action_stop=len(self._tokens),
                text=text,
                action=action,
                observation="",
                reward=0.0,
                is_cut=not is_stopped,
            )
        )
        if action is not None:
            return Send(action)
        self._invalid_actions += 1
        if self._invalid_actions > self._limits.max_invalid_actions:
            return self._finish(Outcome.INVALID_ACTION)
        return self._continue(problem)

    def observe(
        self,
        observation: str,
        *,
        reward: float,
        score: float,
        done: bool,
        success: bool,
        is_refusal: bool = False,
        shows_state: bool = True,
        score_scale: float = 1.0,
    ) -> Command:
        """The environment answered the last action."""
        self._turns[-1] = dataclasses.replace(
            self._turns[-1],
            observation=observation,
            reward=reward,
            is_refused=is_refusal,
            shows_state=shows_state,
        )
        self._score = score
        self._score_scale = score_scale
        self._success = success
        if done:
            return self._finish(Outcome.SUCCESS if success else Outcome.FAILURE)
        return self._continue(observation)

    def fail(self, outcome: Outcome, error: str) -> Command:
        """The environment failed or the collection stops."""
        self._error = error
        return self._finish(outcome)

    def trajectory(self, *, attempts: int, seconds: float) -> Trajectory:
        """The record of a finished episode."""
        if self._outcome is None:
            raise ValueError(f"{self.task.item_id}: the episode has not ended yet")
        return Trajectory(
            item_id=self.task.item_id,
            sample=self._sample,
            step=self._step,
            outcome=self._outcome,
            score=self._score,
            success=self._success,
            tokens=np.asarray(self._tokens, np.int32),
            sources=np.asarray(self._sources, np.int8),
            logprobs=np.asarray(self._logprobs, np.float32),
            policy_versions=np.asarray(self._versions, np.int32),
            turns=tuple(self._turns),
            messages=tuple(self._messages),
            error=self._error,
            attempts=attempts,
            seconds=seconds,
            score_scale=self._score_scale,
            first_observation=self._first_observation,
        )

    def _continue(self, observation: str) -> Command:
        """Goes on with what the model sees next, unless a limit is reached.

        At the horizon the last observation is appended only if it is asked for: nobody answers it.
        """
        is_last = len(self._turns) >= self._limits.max_turns
        if is_last and not self._limits.keep_last_observation:
            return self._finish(Outcome.HORIZON)
        closing = self._renderer.close_turn(self._ended_by_stop)
        shown = self._shown(observation)
        chunk = [*closing, *self._renderer.observation(shown)]
        if len(self._tokens) + len(chunk) >= self._limits.max_tokens:
            return self._finish(Outcome.HORIZON if is_last else Outcome.CONTEXT_FULL)
        self._messages.append({"role": "user", "content": shown})
        self._extend(chunk, TokenSource.OBSERVATION)
        return self._finish(Outcome.HORIZON) if is_last else Append([chunk])

    def _shown(self, observation: str) -> str:
        turns, max_turns = len(self._turns), self._limits.max_turns
        return budget.shown(observation, self._tell_budget, turns=turns, max_turns=max_turns)

    def _finish(self, outcome: Outcome) -> Finish:
        self._outcome = outcome
        return Finish(outcome)

    def _extend(
        self,
        tokens: Sequence[int],
        source: TokenSource,
        logprobs: Sequence[float] | None = None,
        version: int = -1,
    ) -> None:
        n = len(tokens)
        self._tokens.extend(tokens)
        self._sources.extend([int(source)] * n)
        self._logprobs.extend([0.0] * n if logprobs is None else logprobs)
        self._versions.extend([version] * n)
