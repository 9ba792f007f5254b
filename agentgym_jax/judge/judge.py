"""A judge: scores finished episodes by asking a chat endpoint, several at the same time.

An episode without a score is invalid (`Outcome.JUDGE_ERROR`). It never gets a reward of 0.
"""

import collections
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from agentgym_jax.client.chat_endpoint import (
    ChatEndpoint,
    CompletionError,
    RefusedError,
    TemporaryError,
    backoff_s,
)
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.judge.cache import Verdict, VerdictCache
from agentgym_jax.judge.rubric import Conversation, Rubric, parse_verdict, read_conversation
from agentgym_jax.rollout.interface import CollectStatistics

_POLL_S = 0.25  # maximum delay of a stop
_MAX_ERROR = 500  # characters of an error that are kept in a record


@dataclasses.dataclass(frozen=True)
class _Answer:
    """Result of the requests about one conversation; either `verdict` or `problem` is set."""

    key: str
    requests: int
    verdict: Verdict | None
    problem: str
    prompt_tokens: int
    completion_tokens: int


@dataclasses.dataclass(frozen=True)
class Judge:
    """Scores episodes by a rubric.

    Attributes:
      rubric: Model, text and scale.
      cache: Verdicts so far, also those of earlier starts of the run.
      token_prices: Prices of a prompt token and of a completion token, for the cost.
    """

    endpoint: ChatEndpoint
    rubric: Rubric
    cache: VerdictCache
    attempts: int
    workers: int
    token_prices: tuple[float, float] = (0.0, 0.0)

    def score_rollout(
        self,
        trajectories: list[Trajectory],
        statistics: CollectStatistics,
        should_stop: Callable[[], bool],
    ) -> list[Trajectory]:
        """Returns the episodes of a rollout with scores; adds the judge's numbers to its statistics.

        The episodes of a rollout that was stopped are returned as they are.

        Raises:
          RunFolderError: The file of verdicts cannot be written.
        """
        if any(t.outcome is Outcome.ABORTED for t in trajectories):
            return trajectories
        started = time.perf_counter()
        scored, statistics.judge = self.score(trajectories, should_stop)
        statistics.seconds_judge = time.perf_counter() - started
        return scored

    def score(
        self, trajectories: Sequence[Trajectory], should_stop: Callable[[], bool]
    ) -> tuple[list[Trajectory], collections.Counter]:
        """Returns the episodes with scores, and the counts of `CollectStatistics.judge`.

        Invalid episodes and episodes without turns are returned as they are. A valid episode without
        a score becomes JUDGE_ERROR. If `should_stop` returns True, the rest becomes ABORTED.
        """
        conversations = {
            i: read_conversation(t)
            for i, t in enumerate(trajectories)
            if t.outcome.is_valid and t.turns
        }
        keys = {i: self.rubric.key(conversation) for i, conversation in conversations.items()}
        # Episodes with equal conversations share one request.
        unknown = {
            keys[i]: conversation
            for i, conversation in conversations.items()
            if self.cache.find(keys[i]) is None
        }
        answers = self._ask_all(unknown, should_stop)
        scored = [
            self._finish(t, keys[i], answers) if i in keys else t
            for i, t in enumerate(trajectories)
        ]
        num_scored = sum(t.judge_score is not None for t in scored)
        counts: collections.Counter = collections.Counter(
            requests=sum(a.requests for a in answers.values()),
            cached=num_scored - sum(a.verdict is not None for a in answers.values()),
            failed=sum(t.outcome is Outcome.JUDGE_ERROR for t in scored),
            prompt_tokens=sum(a.prompt_tokens for a in answers.values()),
            completion_tokens=sum(a.completion_tokens for a in answers.values()),
        )
        of_prompt, of_completion = self.token_prices
        cost = of_prompt * counts["prompt_tokens"] + of_completion * counts["completion_tokens"]
        counts["cost"] = cost  # type: ignore[assignment]  # a Counter also holds floats
        return scored, counts

    def _finish(
        self, trajectory: Trajectory, key: str, answers: Mapping[str, _Answer]
    ) -> Trajectory:
        """Returns the episode with its score, or as invalid."""
        verdict = self.cache.find(key)
        if verdict is not None:
            score = verdict.score / self.rubric.max_score
            return dataclasses.replace(trajectory, judge_score=score, judge_reason=verdict.reason)
        if key not in answers:
            outcome, error = Outcome.ABORTED, "the run is stopping"
        else:
            outcome, error = Outcome.JUDGE_ERROR, answers[key].problem
        return dataclasses.replace(trajectory, outcome=outcome, error=error)

    def _ask_all(
        self, conversations: Mapping[str, Conversation], should_stop: Callable[[], bool]
    ) -> dict[str, _Answer]:
        """Returns the answers by key; after a stop, only those that have arrived."""
        waiting = collections.deque(conversations.items())
        answers: queue.SimpleQueue[_Answer | Exception] = queue.SimpleQueue()
        is_over = threading.Event()
        for _ in range(min(self.workers, len(conversations))):
            # a daemon thread with a pending request does not delay the exit of the process
            threading.Thread(
                target=self._work, args=(waiting, answers, is_over), daemon=True
            ).start()
        found: dict[str, _Answer] = {}
        try:
            while len(found) < len(conversations) and not should_stop():
                try:
                    answer = answers.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                if isinstance(answer, Exception):
                    raise answer
                if answer.verdict is not None:
                    self.cache.add(answer.key, answer.verdict)
                found[answer.key] = answer
        finally:
            is_over.set()
        return found

    def _work(
        self,
        waiting: collections.deque,
        answers: "queue.SimpleQueue[_Answer | Exception]",
        is_over: threading.Event,
    ) -> None:
        """Asks about the waiting conversations until there are none."""
        while not is_over.is_set():
            try:
                key, conversation = waiting.popleft()
            except IndexError:
                return
            try:
                answers.put(self._ask(key, conversation, is_over))
            except Exception as error:  # noqa: BLE001 - raised in the thread of the collector
                answers.put(error)

    def _ask(self, key: str, conversation: Conversation, is_over: threading.Event) -> _Answer:
        """Asks for one score; repeats the request after temporary errors and unclear answers."""
        body, requests, problem = self.rubric.request(conversation), 0, ""
        prompt_tokens = completion_tokens = 0
        verdict = None
        while verdict is None and requests < self.attempts:
            if requests and is_over.wait(backoff_s(requests)):
                break
            requests += 1
            try:
                completion = self.endpoint.complete(body)
                prompt_tokens += completion.prompt_tokens
                completion_tokens += completion.completion_tokens
                score, reason = parse_verdict(completion.text, self.rubric.max_score)
                reason = self.endpoint.hide_key(reason)
                verdict = Verdict(score, reason, prompt_tokens, completion_tokens)
            except RefusedError as error:
                problem = str(error)
                break
            except (TemporaryError, CompletionError, ValueError) as error:
                problem = str(error)
        if verdict is None:
            # one line, as error messages quote answers
            problem = " ".join(self.endpoint.hide_key(problem).split())[:_MAX_ERROR]
            logging.warning("the judge gave no score in %d requests: %s", requests, problem)
        return _Answer(key, requests, verdict, problem, prompt_tokens, completion_tokens)
