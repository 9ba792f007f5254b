"""Episode of an agent program: its conversations, its environment, and its trajectory."""

import collections
import concurrent.futures
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.client.answers import Observation
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.pool import EnvPool, Reply
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.programs.open_requests import OpenRequests
from agentgym_jax.programs.program_record import (
    Ending,
    Step,
    answer_with_text,
    make_trajectory,
)
from agentgym_jax.programs.task import ProgramResult
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.rollout.scheduler import Ticket
from agentgym_jax.sampling.adjusting import LogitOptions
from agentgym_jax.sampling.options import episode_key
from agentgym_jax.serving.chat_sequences import Conversations
from agentgym_jax.serving.digests import Message
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.requests import (
    EPISODE_LIMIT,
    Generation,
    NotServingError,
    OnTokens,
    OverloadedError,
    Pending,
    RequestError,
    Sampling,
    answer_name,
)
from agentgym_jax.serving.sequences import Answer
from agentgym_jax.text.tool_chat import ToolChat

_EPISODE_OVER = "episode_over"  # code of refused requests
# Parameters of a request that belong to the config, because they change the distribution.
_LOGITS = tuple(field.name for field in dataclasses.fields(LogitOptions))
_OF_CONFIG = ("temperature", "top_k", "top_p", "seed", *_LOGITS)
_OVER = "the episode is over; the program should return"


class EpisodeEndedError(Exception):
    """The environment cannot answer, because the episode is over or the call is not possible."""


class ProgramEpisode:
    """One attempt at an episode. Thread-safe.

    Attributes:
      request: Task, key and limits of the episode.
      chat: Conversations of the program.
      env_error: Error of the environment, if one ended the episode.

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
        ticket: Ticket,
        pauses: int,
    ):
        self.request = request
        self.env_error: tuple[Reply, EnvError] | None = None
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
        self._steps: list[Step] = []
        self._reply: concurrent.futures.Future[Observation] | None = None
        self._open = OpenRequests()
        self._is_paused = False
        self._unsent: Callable[[], None] | None = None  # call of the environment during a pause

    @property
    def active_s(self) -> float:
        """Seconds since the start in which the episode did not wait for newer weights."""
        with self._lock:
            return self._open.active_s

    @property
    def is_waiting(self) -> bool:
        """True if the episode waits for newer weights, and for nothing else."""
        return self._open.is_waiting and self._reply is None

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
            step = Step(self._find_answer(answer, name), parsed.action)
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
        if name and name not in answers:
            raise RequestError(
                f"there is no answer {name!r}; give the id of a response of this episode, and "
                "the index of one of its choices",
                param="response_id",
            )
        if name:
            return answers[name]
        taken = [step.after for step in self._steps]
        found = answer_with_text(text, answers.values(), taken, self.chat.form)
        if found is not None:
            return found
        last = next(reversed(answers), "")
        if self._open.overlaps(last):
            raise RequestError(
                "the text is not that of an answer, and several requests were open at the same "
                "time; name the answer with response_id (and choice)",
                param="response_id",
            )
        return answers.get(last)

    def submit_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
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

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> int:
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
            self._open.add(name, version)

        def end(future: "concurrent.futures.Future[Generation]") -> None:
            with self._lock:
                self._open.remove(name)
                self._num_requests -= future.exception() is not None

        pending.result.add_done_callback(end)
        return pending

    def _refuse_turn(self, name: str, error: RequestError) -> RequestError:
        """Returns the error of a request beyond the turn limit.

        If it is one of several choices, the others are cancelled and the episode continues.
        """
        response = name.rpartition("/")[0]
        with self._lock:
            others = [*self._open.names, *self.chat.answers]
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
        defaults: dict[str, Any] = dict.fromkeys(_OF_CONFIG)
        return dataclasses.replace(sampling, **defaults)

    # The following methods are called by the collector.

    def pause(self) -> bool:
        """Holds the actions of an episode that waits for newer weights; False if it does not."""
        with self._lock:
            self._is_paused = self.is_waiting
            return self._is_paused

    def resume(self, version: int | None) -> None:
        """Continues with the weights of a version; None if no request has a version."""
        with self._lock:
            self._open.set_version(version)
            self._is_paused = False
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
                assert reply.observation is not None, "a reply without an error has one"
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

    @property
    def num_turns(self) -> int:
        """Number of the policy's answers."""
        return len(self.chat.answers)

    def trajectory(self, ending: Ending, *, error: str, attempts: int) -> Trajectory:
        """Returns the record of the episode; its branches are the sequences of the program."""
        return make_trajectory(
            self.request,
            self.chat.sequences,
            self._steps,
            ending,
            first=self._first,
            last=self._last,
            error=error,
            attempts=attempts,
            seconds=time.perf_counter() - self._open.started,
        )

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
        most = self.request.limits.max_turns
        with self._lock:
            if self._is_over:
                raise RequestError(_OVER, _EPISODE_OVER)
            if self._limit is not None or self._num_requests >= most:
                raise RequestError(
                    f"the episode has reached a limit ({self._limit or Outcome.HORIZON}; "
                    f"{most} turns at most); the program should return",
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

    def _reject(self, step: Step, problem: str) -> "concurrent.futures.Future[Observation]":
        """Answers a text without an action, without a call of the environment."""
        assert self._last is not None
        self._steps.append(step)
        if sum(s.action is None for s in self._steps) > self.request.limits.max_parse_errors:
            self._limit = Outcome.PARSE_ERRORS
        answer: concurrent.futures.Future[Observation] = concurrent.futures.Future()
        answer.set_result(dataclasses.replace(self._last, text=problem, reward=0.0, done=False))
        return answer
