"""Many episodes, many servers, one caller that never waits for any of them.

The caller starts and steps episodes under tickets of its own choice and collects replies
with `poll`; worker threads make the calls. What a ticket observes depends on its task and
its actions alone: which session, worker or moment serves it changes nothing, because every
episode begins with a reset and a session belongs to one ticket at a time.
"""

import collections
import dataclasses
import enum
import random
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Mapping
from typing import Annotated

from absl import logging

from agentgym_envs.base.protocol import RETRYABLE
from agentgym_jax.env_client.breaker import Breaker
from agentgym_jax.env_client.client import EnvClient, Observation
from agentgym_jax.env_client.errors import EnvCause, EnvError
from agentgym_jax.env_client.jobs import JobQueue
from agentgym_jax.env_client.sessions import ServerSessions, Session
from agentgym_jax.limits import Range

Seconds = Annotated[float, Range(0, unit="seconds")]


class ReplyKind(enum.StrEnum):
    """Which request a reply answers."""

    START = "start"
    STEP = "step"


@dataclasses.dataclass(frozen=True)
class Reply:
    """Answer to one `start` or `step`: an observation or an error, never both.

    Attributes:
      ticket: whose request.
      kind: which request.
      observation: what the environment answered; None after a failure.
      error: why there is no observation; None after a success.
      seconds: from the request to its reply, with waiting and retries.
    """

    ticket: Hashable
    kind: ReplyKind
    observation: Observation | None
    error: EnvError | None
    seconds: float


@dataclasses.dataclass
class _Episode:
    """What the pool knows about a ticket. A worker owns `session` while a call is under way."""

    ticket: Hashable
    server: ServerSessions
    session: Session | None = None
    mark: str = ""  # tells the server which episode a request belongs to
    steps: int = 0  # answered since the reset
    waiting: bool = False  # a request was made and its reply was not collected
    abandoned: bool = False  # finished while a call was under way: nobody wants the reply


@dataclasses.dataclass
class _Job:
    """One request, or (without an episode) the closing of a session."""

    run: Callable[[], Observation | None]
    episode: _Episode | None
    kind: ReplyKind | None
    submitted_s: float
    attempts: int = 0


class EnvPool:
    """Threads that talk to environment servers. Use as a context manager, or call `close`.

    A failed step is never sent again: it is reported, its session is given up, and the caller
    may start the ticket anew. Only two things are tried again here, with growing pauses: any
    request that the server refused as full or busy, and a start that met no server.

    Args:
      clients: environment name -> client of its server.
      workers: Threads, and so the largest number of concurrent calls.
      max_idle_sessions: Sessions per environment that are kept for reuse.
      retry_patience_s: Longest time that a request is tried again before it is reported.
      backoff_s: Pause before the first further attempt; doubles each time, with jitter.
      backoff_max_s: Longest pause.
      breaker_failures: Consecutive failed calls after which a server may count as unavailable.
      breaker_patience_s: Time that these failures must span as well; then the run stops.
      close_timeout_s: Time at the end for running calls and for sessions to close.

    Attributes:
      patience_s: how long a server may fail everybody.
    """

    def __init__(
        self,
        clients: Mapping[str, EnvClient],
        *,
        workers: Annotated[int, Range(1)],
        max_idle_sessions: Annotated[int, Range(0)],
        retry_patience_s: Seconds = 120.0,
        backoff_s: Seconds = 0.1,
        backoff_max_s: Seconds = 5.0,
        breaker_failures: Annotated[int, Range(1)] = 20,
        breaker_patience_s: Seconds = 60.0,
        close_timeout_s: Seconds = 10.0,
    ):
        if workers < 1:
            raise ValueError(f"an environment pool needs at least one worker, got {workers}")
        self.patience_s = breaker_patience_s
        self._retry_patience_s = retry_patience_s
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._close_timeout_s = close_timeout_s
        self._jitter = random.Random()  # spreads retries; no result depends on it
        self._jobs: JobQueue[_Job] = JobQueue()
        # One lock for all below; notified when a reply, a failure or a crash is there to see.
        self._changed = threading.Condition()
        self._episodes: dict[Hashable, _Episode] = {}
        self._replies: collections.deque[Reply] = collections.deque()
        self._servers = {
            name: ServerSessions(
                client,
                max_idle=max_idle_sessions,
                breaker=Breaker(
                    name,
                    client.base_url,
                    failures=breaker_failures,
                    patience_s=breaker_patience_s,
                ),
                close_timeout_s=close_timeout_s,
            )
            for name, client in clients.items()
        }
        self._retries = 0
        self._crash: Exception | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"env-pool-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "EnvPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self, ticket: Hashable, environment: str, data_idx: int, pauses: int = 0) -> None:
        """Begins an episode, also again for a ticket whose last reply was collected.

        Args:
          ticket: names the episode.
          environment: where it is played.
          data_idx: its task.
          pauses: how often it failed because its server was sick; it waits before the next time.
        """
        if environment not in self._servers:
            raise ValueError(
                f"environment {environment!r} has no client in this pool; it has "
                f"{sorted(self._servers)}"
            )
        with self._changed:
            server = self._servers[environment]
            episode = self._episodes[ticket] if ticket in self._episodes else None
            if episode is None or episode.server is not server:
                self._must_be_free(episode)
                if episode is not None:
                    self._release(episode)
                episode = _Episode(ticket, server)
                self._episodes[ticket] = episode
            delay_s = self._pause_s(pauses) if pauses else 0.0
            self._submit(episode, ReplyKind.START, lambda: self._reset(episode, data_idx), delay_s)

    def step(self, ticket: Hashable, action: str) -> None:
        """Sends an action to the ticket's environment."""
        with self._changed:
            episode = self._episode(ticket)
            self._submit(episode, ReplyKind.STEP, lambda: self._step(episode, action))

    def finish(self, ticket: Hashable) -> None:
        """Forgets a ticket; its session is kept for another episode. A late reply is dropped."""
        with self._changed:
            episode = self._episode(ticket)
            del self._episodes[ticket]
            if episode.waiting:
                kept = [reply for reply in self._replies if reply.ticket != ticket]
                if len(kept) == len(self._replies):
                    episode.abandoned = True  # its worker releases the session
                    return
                self._replies = collections.deque(kept)
            self._release(episode)

    @property
    def is_waiting(self) -> bool:
        """If some environment has still to answer, or its answer to be polled."""
        with self._changed:
            return any(episode.waiting for episode in self._episodes.values())

    def poll(self, timeout_s: float) -> list[Reply]:
        """All replies that are there, after waiting at most `timeout_s` seconds for the first.

        Returns at once if no request is under way.

        Raises:
          ServerUnavailable: a server failed all calls for longer than its declared patience.
            Replies that are there stay there.
          RuntimeError: a worker failed for a reason that is not the environment's.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._raise_trouble()
                left_s = deadline - time.monotonic()
                under_way = any(episode.waiting for episode in self._episodes.values())
                if self._replies or left_s <= 0 or not under_way:
                    break
                self._changed.wait(left_s)
            replies = list(self._replies)
            self._replies.clear()
            for reply in replies:
                self._episodes[reply.ticket].waiting = False
            return replies

    def invalidate(self, environment: str) -> None:
        """Declares that the server was restarted: all its sessions are lost, failures forgotten."""
        self._servers[environment].invalidate()

    def statistics(self) -> dict[str, int]:
        """Counts since the pool was made: `calls`, `retries`, `sessions_*`, `errors/<cause>`."""
        counts: collections.Counter[str] = collections.Counter()
        for server in self._servers.values():
            counts.update(server.statistics())
        with self._changed:
            return {**counts, "retries": self._retries, "tickets": len(self._episodes)}

    @property
    def open_sessions(self) -> int:
        """Sessions held now: those of tickets, and idle ones kept for reuse."""
        idle = sum(server.statistics()["sessions_idle"] for server in self._servers.values())
        with self._changed:
            return idle + sum(e.session is not None for e in self._episodes.values())

    def close(self) -> None:
        """Closes every session and joins the threads; returns within `close_timeout_s`."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for job in self._jobs.take_all():
                if job.episode is None:
                    self._jobs.put(job)
                else:
                    # It never began, so that its session can be closed now.
                    job.episode.waiting = False
                    self._release(job.episode)
            for reply in self._replies:
                self._episodes[reply.ticket].waiting = False
            self._replies.clear()
            for episode in self._episodes.values():
                if episode.waiting:
                    episode.abandoned = True
                else:
                    self._release(episode)
            self._episodes.clear()
            for server in self._servers.values():
                for session in server.take_all_idle():
                    self._give_up(server, session)
        self._jobs.end()
        deadline = time.monotonic() + self._close_timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = sum(thread.is_alive() for thread in self._threads)
        if late:
            left = len(self._jobs.take_all())
            logging.warning(
                "environment pool: %d calls did not end within %.0f s of closing and %d sessions "
                "were left to expire on their servers",
                late,
                self._close_timeout_s,
                left,
            )
        for server in self._servers.values():
            server.client.disconnect()

    # What the caller's thread does, with the lock held.

    def _episode(self, ticket: Hashable) -> _Episode:
        if ticket not in self._episodes:
            raise ValueError(f"ticket {ticket!r} has no episode in this pool; call start first")
        return self._episodes[ticket]

    def _must_be_free(self, episode: _Episode | None) -> None:
        if self._closed:
            raise RuntimeError("this environment pool is closed")
        if episode is not None and episode.waiting:
            raise ValueError(
                f"ticket {episode.ticket!r} still waits for a reply; collect it with poll first"
            )

    def _submit(
        self,
        episode: _Episode,
        kind: ReplyKind,
        run: Callable[[], Observation],
        delay_s: float = 0.0,
    ) -> None:
        self._must_be_free(episode)
        episode.waiting = True
        self._jobs.put(_Job(run, episode, kind, time.monotonic()), delay_s=delay_s)

    def _raise_trouble(self) -> None:
        if self._crash is not None:
            raise RuntimeError("a worker of the environment pool failed") from self._crash
        for server in self._servers.values():
            if (error := server.trouble()) is not None:
                raise error

    def _release(self, episode: _Episode) -> None:
        """Gives the episode's session back for reuse, or closes it."""
        session, episode.session = episode.session, None
        if session is not None and (self._closed or not episode.server.keep(session)):
            self._give_up(episode.server, session)

    def _give_up(self, server: ServerSessions, session: Session) -> None:
        """Lets a worker close a session."""
        job = _Job(lambda: server.close_session(session), None, None, time.monotonic())
        self._jobs.put(job)

    # What workers do.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._serve(job)
            except Exception as error:  # noqa: BLE001 - poll hands it to the caller
                with self._changed:
                    self._crash = error
                    self._changed.notify_all()

    def _serve(self, job: _Job) -> None:
        """Runs a job; replies, or puts it back for later."""
        episode = job.episode
        observation: Observation | None = None
        error: EnvError | None = None
        if episode is None or not episode.abandoned:
            try:
                observation = job.run()
            except EnvError as caught:
                error = caught
        if episode is None or job.kind is None:
            return
        with self._changed:
            self._changed.notify_all()  # a reply, or a failure that may open a breaker
            if episode.abandoned:
                self._release(episode)
            elif error is not None and self._may_retry(job, error):
                self._retries += 1
                job.attempts += 1
                self._jobs.put(job, delay_s=self._pause_s(job.attempts))
            else:
                seconds = time.monotonic() - job.submitted_s
                self._replies.append(Reply(episode.ticket, job.kind, observation, error, seconds))

    def _may_retry(self, job: _Job, error: EnvError) -> bool:
        if self._closed or time.monotonic() - job.submitted_s >= self._retry_patience_s:
            return False
        if job.kind is ReplyKind.START:
            return error.cause in (EnvCause.CAPACITY, EnvCause.CONNECTION, EnvCause.SERVER_GONE)
        return error.kind in RETRYABLE

    def _pause_s(self, attempts: int) -> float:
        pause_s = min(self._backoff_max_s, self._backoff_s * 2 ** min(attempts - 1, 20))
        return pause_s * self._jitter.uniform(0.5, 1.0)

    def _reset(self, episode: _Episode, data_idx: int) -> Observation:
        """Resets the episode's own session, else an idle one, else a new one."""
        server = episode.server
        while True:
            session = episode.session
            if session is None or not server.is_current(session):
                session = server.take_idle()
            is_new = session is None
            if session is None:
                session = server.create()
            episode.session = session
            try:
                episode.mark, episode.steps = uuid.uuid4().hex, 0
                turn = f"{episode.mark}/0"
                return server.call(server.client.reset, session.number, data_idx, turn)
            except EnvError as error:
                self._lose(episode, error)
                # A kept session may have expired on the server: that is no failure of this start.
                if is_new or error.cause is not EnvCause.SESSION_LOST:
                    raise

    def _step(self, episode: _Episode, action: str) -> Observation:
        server, session = episode.server, episode.session
        if session is None or not server.is_current(session):
            raise EnvError(
                EnvCause.SESSION_LOST,
                f"{server.client.environment}: ticket {episode.ticket!r} has no session on the "
                "present server (its last call failed or the server was restarted); start it again",
            )
        turn = f"{episode.mark}/{episode.steps + 1}"
        try:
            observation = server.call(server.client.step, session.number, action, turn)
        except EnvError as error:
            if error.kind not in RETRYABLE:
                self._lose(episode, error)
            raise
        episode.steps += 1
        return observation

    def _lose(self, episode: _Episode, error: EnvError) -> None:
        """After a failure the state of a session is unknown: it is never used again."""
        session, episode.session = episode.session, None
        if session is not None and error.cause is not EnvCause.SESSION_LOST:
            self._give_up(episode.server, session)
