"""Episode of an agent program: its conversations, its environment, and its trajectory."""

import collections
import concurrent.futures
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentgym_jax.client.answers import Observation
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.pool import EnvPool, Reply
from agentgym_jax.episodes.token_lists import token_fields
from agentgym_jax.episodes.trajectory import Outcome, Trajectory, Turn
from agentgym_jax.programs.task import ProgramResult
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.sampling.adjusting import LogitOptions
from agentgym_jax.sampling.options import episode_key
from agentgym_jax.serving.chat_sequences import Conversations
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.requests import (
    EPISODE_LIMIT,
    NotServingError,
    OnTokens,
    OverloadedError,
    Pending,
    RequestError,
    Sampling,
    answer_name,
)
from agentgym_jax.serving.sequences import Answer, TokenSequence
from agentgym_jax.text.tool_chat import ToolChat

_EPISODE_OVER = "episode_over"  # code of refused requests
# Parameters of a request that belong to the config, because they change the distribution.
_LOGITS = tuple(field.name for field in dataclasses.fields(LogitOptions))
_OF_CONFIG = ("temperature", "top_k", "top_p", "seed", *_LOGITS)
_OVER = "the episode is over; the program should return"


class EpisodeEndedError(Exception):
    """The environment cannot answer, because the episode is over or the call is not possible."""


@dataclasses.dataclass
class _Step:
    """Action of the program in its environment."""

    after: Answer | None  # last answer of the policy before the action
    action: str | None  # None after a parse error
    observation: str = ""
    answer: Observation | None = None


@dataclasses.dataclass(frozen=True)
class Ending:
    """Result of an episode; `is_own` is True if the program set the score, not the environment."""

    outcome: Outcome
    score: float = 0.0
    success: bool = False
    is_own: bool = False


class ProgramEpisode:
    """One attempt at an episode. Thread-safe.

    Attributes:
      request: Task, key and limits of the episode.
      chat: Conversations of the program.
      env_error: Error of the environment, if one ended the episode.
      started: Time at which the attempt started, `time.perf_counter()`.

    An episode waits if all its open requests need weights newer than `version` of `resume`. It is
    paused while the engine is stopped; the program may send requests and actions, which then wait.
    """

    def __init__(
        self,
        request: EpisodeRequest,
        engine: Engine,
        encoder: ToolChat,
        pool: EnvPool,
        text: EnvironmentText,
        ticket: Any,
        pauses: int,
    ):
        self.request = request
        self.env_error: tuple[Reply, EnvError] | None = None
        self.started = time.perf_counter()
        max_tokens = min(request.sampling.max_tokens, request.limits.max_tokens)
        self.chat = Conversations(
            engine,
            encoder,
            dataclasses.replace(request.sampling, max_tokens=max_tokens),
            self._make_key,
            max_known=None,
            on_request=self._count_request,
        )
        # Requests by the field whose value was replaced by that of the config.
        self.overridden: collections.Counter[str] = collections.Counter()
        self._pool = pool
        self._text = text
        self._ticket = ticket
        self._pauses = pauses
        self._lock = threading.Lock()
        self._limit: Outcome | None = None  # limit that refused a request
        self._refusal = ""  # last reason for which a request was refused
        self._is_over = False
        self._num_requests = 0
        self._wants_turns = False  # True after a request beyond `max_turns`
        self._numbers = itertools.count()
        self._first: Observation | None = None
        self._last: Observation | None = None
        self._steps: list[_Step] = []
        self._reply: concurrent.futures.Future[Observation] | None = None
        # Names of open chat requests, with the version of the weights that each needs.
        self._open: dict[str, int | None] = {}
        self._version: int | None = None
        self._is_paused = False
        self._unsent: Callable[[], None] | None = None  # call of the environment during a pause
        self._waiting_since: float | None = None
        self._waited_s = 0.0
        self._overlapping: set[str] = set()  # names of requests that were open with others

    @property
    def active_s(self) -> float:
        """Seconds since the start in which the episode did not wait for newer weights."""
        with self._lock:
            now = time.perf_counter()
            since = now if self._waiting_since is None else self._waiting_since
            return since - self.started - self._waited_s

    @property
    def is_waiting(self) -> bool:
        """True if the episode waits for newer weights, and for nothing else."""
        return self._waiting_since is not None and self._reply is None

    @property
    def uses_environment(self) -> bool:
        """True if the program has started its environment."""
        return self._first is not None or self._reply is not None

    # The following methods serve the program.

    def reset(self) -> "concurrent.futures.Future[Observation]":
        """Starts the environment."""
        with self._lock:
            if self.uses_environment:
                raise EpisodeEndedError("the environment was reset already; an episode has one")
            task = self.request.task
            return self._ask(
                lambda: self._pool.start(
                    self._ticket, task.environment, task.data_idx, self._pauses
                ),
                self._take_first,
            )

    def act(
        self, answer: str, response_id: str = "", choice: int = 0
    ) -> "concurrent.futures.Future[Observation]":
        """Sends the action of an answer to the environment.

        Args:
          answer: Text of the answer.
          response_id: Id of the response with the answer; empty to find the answer by its text.
          choice: Index of the answer in the response.
        """
        with self._lock:
            if self._last is None:
                raise EpisodeEndedError("reset the environment before the first action")
            if self._last.done:
                raise EpisodeEndedError("the environment has ended the episode; return")
            name = answer_name(response_id, choice) if response_id else ""
            parsed = self._text.parse(answer)
            step = _Step(self._find_answer(answer, name), parsed.action)
            if parsed.action is None:
                return self._reject(step, parsed.problem or "")
            action = parsed.action

            def take(observation: Observation) -> None:
                step.observation, step.answer = observation.text, observation
                self._steps.append(step)
                self._last = observation

            return self._ask(lambda: self._pool.step(self._ticket, action), take)

    def _find_answer(self, text: str, name: str) -> Answer | None:
        """Returns the answer that an action is of; None if the policy has not answered yet.

        Raises:
          RequestError: The answer is unknown, or could be one of several.
        """
        answers = dict(self.chat.answers)
        if name:
            if name not in answers:
                raise RequestError(
                    f"there is no answer {name!r}; give the id of a response of this episode, and "
                    "the index of one of its choices",
                    param="response_id",
                )
            return answers[name]
        taken = [step.after for step in self._steps]
        same = [a for a in answers.values() if text.strip() in self._contents(a.text)]
        fresh = [a for a in same if not any(a is other for other in taken)]
        if same:
            return (fresh or same)[-1]
        last = next(reversed(answers), "")
        if last in self._overlapping or len(self._open) > (last in self._open):
            raise RequestError(
                "the text is not that of an answer, and several requests were open at the same "
                "time; name the answer with response_id (and choice)",
                param="response_id",
            )
        return answers.get(last)

    def _contents(self, text: str) -> tuple[str, ...]:
        """Returns the forms in which clients see the text of an answer."""
        parts = [self.chat.form.read(text, has_tools=has_tools) for has_tools in (False, True)]
        return text.strip(), *(part.text.strip() for part in parts)

    def submit_chat(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any],
        sampling: Sampling,
        on_tokens: OnTokens | None = None,
    ) -> Pending:
        """Implements `requests.Chat.submit_chat`."""
        return self._submit(
            lambda own: self.chat.submit_chat(messages, tools, own, on_tokens), sampling
        )

    def submit_tokens(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Pending:
        """Implements `requests.Chat.submit_tokens`."""
        return self._submit(
            lambda own: self.chat.submit_tokens(prompt_ids, own, on_tokens), sampling
        )

    def count_tokens(self, messages: Sequence[Any], tools: Sequence[Any]) -> int:
        """Implements `requests.Chat.count_tokens`; counts as no request of the episode."""
        return self.chat.count_tokens(messages, tools)

    def _submit(self, submit: Callable[[Sampling], Pending], sampling: Sampling) -> Pending:
        name = sampling.name or f"request {next(self._numbers)}"
        versions, number = self.request.turn_versions, self._num_requests
        version = versions[min(number, len(versions) - 1)] if versions else None
        own = dataclasses.replace(self._override(sampling), name=name, version=version)
        try:
            pending = submit(own)
        except RequestError as error:
            if error.code == EPISODE_LIMIT:
                error = self._refuse_turn(name, error)
            self._refusal = str(error)
            if error.code == "context_length_exceeded":
                self._limit = self._limit or Outcome.CONTEXT_FULL
            if error.code not in (EPISODE_LIMIT, _EPISODE_OVER):
                self._discount()
            raise error from None
        except (OverloadedError, NotServingError):  # the client may repeat the request
            self._discount()
            raise
        with self._lock:
            if self._open:
                self._overlapping |= {name, *self._open}
            self._open[name] = version
            self._update_clock()

        def end(future: Any) -> None:
            with self._lock:
                self._open.pop(name, None)
                self._num_requests -= future.exception() is not None
                self._update_clock()

        pending.result.add_done_callback(end)
        return pending

    def _refuse_turn(self, name: str, error: RequestError) -> RequestError:
        """Returns the error of a request beyond the turn limit.

        If it is one of several choices, the others are cancelled and the episode continues.
        """
        response = name.rpartition("/")[0]
        with self._lock:
            others = [*self._open, *self.chat.answers]
            if not response or all(o.rpartition("/")[0] != response for o in others):
                self._wants_turns = True
                return error
        return RequestError(
            f"the request asks for more choices than the episode has turns left, of "
            f"{self.request.limits.max_turns}; lower n",
            EPISODE_LIMIT,
            "n",
        )

    def _override(self, sampling: Sampling) -> Sampling:
        """Replaces values that change the distribution of tokens: the learner assumes the config's."""
        config = vars(LogitOptions()) | vars(self.request.sampling) | {"seed": None}
        given = {name: getattr(sampling, name) for name in _OF_CONFIG}
        changed = [name for name, value in given.items() if value not in (None, config[name])]
        with self._lock:
            self.overridden.update(changed)
        return dataclasses.replace(sampling, **dict.fromkeys(_OF_CONFIG))

    def _update_clock(self) -> None:
        """Starts or ends a wait for newer weights, after a change of the open requests."""
        now = time.perf_counter()
        if self._waiting_since is not None:
            self._waited_s += now - self._waiting_since
        is_waiting = bool(self._open) and all(
            version is not None and self._version is not None and version > self._version
            for version in self._open.values()
        )
        self._waiting_since = now if is_waiting else None

    # The following methods are called by the collector.

    def pause(self) -> bool:
        """Holds the actions of an episode that waits for newer weights; False if it does not."""
        with self._lock:
            self._is_paused = self.is_waiting
            return self._is_paused

    def resume(self, version: int | None) -> None:
        """Continues with the weights of a version; None if no request has a version."""
        with self._lock:
            self._version, self._is_paused = version, False
            self._update_clock()
            send, self._unsent = self._unsent, None
            if send is not None:
                send()

    def take_reply(self, reply: Reply) -> None:
        """Passes a reply of the pool to the program."""
        with self._lock:
            future, self._reply = self._reply, None
            if future is None:
                return
            if reply.error is not None:
                if reply.error.cause is not EnvCause.PROGRAM:  # the program's own mistake
                    self.env_error = (reply, reply.error)
                future.set_exception(EpisodeEndedError(f"the environment failed: {reply.error}"))
            else:
                future.set_result(reply.observation)

    def close(self) -> None:
        """Refuses further requests, and frees cache rows and session."""
        with self._lock:
            self._is_over = True
            has_session = self._first is not None or self._unsent is None
            if self.uses_environment and has_session:
                self._pool.finish(self._ticket)
            self._unsent = None
            reply, self._reply = self._reply, None
        if reply is not None:
            reply.set_exception(EpisodeEndedError(_OVER))
        self.chat.close()  # the record must not change any more

    def end(self, result: ProgramResult | None) -> Ending | str:
        """Returns the ending of the episode; a text if the program did not do its work.

        Args:
          result: Result of the program; None if it failed.
        """
        last = self._last
        is_done = last is not None and last.done
        is_full = self._num_requests >= self.request.limits.max_turns
        if is_full and (self._wants_turns or (last is not None and not is_done)):
            self._limit = self._limit or Outcome.HORIZON
        if not self.chat.sequences:  # nothing to train, so a score would be a wrong zero or bonus
            reason = f"its last request was refused: {self._refusal}" if self._refusal else ""
            return f"the program got no answer; {reason or 'it made no chat request'}"
        if result is None and self._limit is None:
            return "the program failed"
        is_own = result is not None and result.reward is not None
        if result is not None and result.reward is not None:
            score, success = result.reward, result.success
        elif last is not None:
            score, success = last.score, last.success
        elif self._limit is not None:
            score, success = 0.0, False
        else:
            return "the program returned no reward and did not use the environment"
        if self._limit is not None and not is_done:
            return Ending(self._limit, score, success, is_own)
        return Ending(Outcome.SUCCESS if success else Outcome.FAILURE, score, success, is_own)

    def trajectory(self, ending: Ending, *, error: str, attempts: int) -> Trajectory:
        """Returns the record of the episode; its branches are the sequences of the program."""
        recorded = sorted(self.chat.sequences.items(), key=lambda item: item[0].number)
        sequences = [sequence for sequence, _ in recorded]
        has_env_score = self._last is not None and not ending.is_own
        return Trajectory(
            item_id=self.request.task.item_id,
            sample=self.request.sample,
            step=self.request.step,
            outcome=ending.outcome,
            score=ending.score,
            success=ending.success,
            **token_fields(sequences),
            turns=self._make_turns(sequences, None if has_env_score else ending.score),
            messages=tuple(
                message
                for sequence, known in recorded
                for message in _shown(known, len(sequence.answers))
            ),
            error=error,
            attempts=attempts,
            seconds=time.perf_counter() - self.started,
            score_scale=self._last.score_scale if self._last and has_env_score else 1.0,
            first_observation=None if self._first is None else self._first.text,
        )

    def _make_turns(
        self, sequences: Sequence[TokenSequence], own_score: float | None
    ) -> tuple[Turn, ...]:
        """Returns the turns of all sequences.

        Args:
          sequences: Sequences in the order of the record.
          own_score: Score that the program set, reward of the last turn; None if the turns have the
            rewards of the environment.
        """
        turns = []
        start = 0
        for sequence in sequences:
            turns += [self._make_turn(answer, start) for answer in sequence.answers]
            start += len(sequence)
        if own_score is not None:
            rewards = [0.0] * (len(turns) - 1) + [own_score]
            turns = [
                dataclasses.replace(turn, reward=reward)
                for turn, reward in zip(turns, rewards[: len(turns)], strict=True)
            ]
        return tuple(turns)

    def _make_turn(self, answer: Answer, start: int) -> Turn:
        """Returns the turn of an answer whose sequence begins at `start`, with its action."""
        turn = Turn(
            action_start=start + answer.start,
            action_stop=start + answer.stop,
            text=answer.text,
            action=answer.text,
            observation="",
            reward=0.0,
            is_cut=answer.is_cut,
            grammar=answer.grammar,
        )
        for step in self._steps:
            if step.after is not answer:
                continue
            turn = dataclasses.replace(turn, action=step.action, observation=step.observation)
            if step.answer is not None:
                turn = dataclasses.replace(
                    turn,
                    reward=turn.reward + step.answer.reward,
                    is_rejected=step.answer.is_rejection,
                    shows_state=step.answer.shows_state,
                )
        return turn

    def _make_key(self, seed: int | None, number: int) -> np.ndarray:
        """Returns the key of a sequence; the first has the key of the same episode without a program."""
        r = self.request
        return episode_key(r.seed, r.step, r.task.item_id, r.sample, number)

    def _discount(self) -> None:
        """Takes back the count of a request without an answer."""
        with self._lock:
            self._num_requests -= 1

    def _count_request(self) -> None:
        """Counts a request; refuses it if the episode is over or has reached a limit."""
        with self._lock:
            self._count_or_refuse()

    def _count_or_refuse(self) -> None:
        limits = self.request.limits
        if self._is_over:
            raise RequestError(_OVER, _EPISODE_OVER)
        if self._limit is not None or self._num_requests >= limits.max_turns:
            raise RequestError(
                f"the episode has reached a limit ({self._limit or Outcome.HORIZON}; "
                f"{limits.max_turns} turns at most); the program should return",
                EPISODE_LIMIT,
            )
        self._num_requests += 1

    def _ask(
        self, send: Callable[[], None], take: Callable[[Observation], None]
    ) -> "concurrent.futures.Future[Observation]":
        if self._is_over or self.env_error is not None:
            raise EpisodeEndedError(_OVER)
        if self._reply is not None:
            raise EpisodeEndedError("the environment is answering another call of this episode")
        answer: concurrent.futures.Future[Observation] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()

        def finish(reply: "concurrent.futures.Future[Observation]") -> None:
            if error := reply.exception():
                answer.set_exception(error)
                return
            take(reply.result())
            answer.set_result(reply.result())

        if self._is_paused:
            self._unsent = send
        else:
            send()
        self._reply = concurrent.futures.Future()
        self._reply.add_done_callback(finish)
        return answer

    def _take_first(self, observation: Observation) -> None:
        self._first = self._last = observation

    def _reject(self, step: _Step, problem: str) -> "concurrent.futures.Future[Observation]":
        """Answers a text without an action, without a call of the environment."""
        assert self._last is not None
        self._steps.append(step)
        if sum(s.action is None for s in self._steps) > self.request.limits.max_parse_errors:
            self._limit = Outcome.PARSE_ERRORS
        answer: concurrent.futures.Future[Observation] = concurrent.futures.Future()
        answer.set_result(dataclasses.replace(self._last, text=problem, reward=0.0, done=False))
        return answer


def _shown(messages: Any, num_answers: int) -> list[Any]:
    """Returns the messages of a branch for the record.

    Answers that this branch did not sample, but got in a rewritten history, have no loss.
    """
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    given = set(answers[: len(answers) - num_answers])
    return [
        {"role": message["role"], "content": message.get("content") or ""}
        | ({"loss": False} if i in given else {})
        for i, message in enumerate(messages)
    ]
