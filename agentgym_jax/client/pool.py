"""Thread pool for many episodes on many servers.

The caller identifies each episode by a hashable ticket, calls `start` and `step`, and collects
replies with `poll`. The observations of a ticket depend only on its task and actions, not on time.
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
from agentgym_jax.checks.limits import Range, Seconds
from agentgym_jax.client.client import EnvClient, Observation
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.failures import Breaker
from agentgym_jax.client.job_queue import JobQueue
from agentgym_jax.client.sessions import ServerSessions, Session


class ReplyKind(enum.StrEnum):
    """Type of the request that a reply answers."""

    START = "start"
    STEP = "step"


@dataclasses.dataclass(frozen=True)
class Reply:
    """Answer to one `start` or `step` of a ticket: an observation or an error, never both."""

    ticket: Hashable
    kind: ReplyKind
    observation: Observation | None
    error: EnvError | None


@dataclasses.dataclass
class _Episode:
    """State of a ticket in the pool. During a call, only the worker thread may use `session`."""

    ticket: Hashable
    server: ServerSessions
    session: Session | None = None
    mark: str = ""  # prefix of REQUEST_ID_HEADER that identifies the episode
    steps: int = 0  # number of steps answered since the reset
    waiting: bool = False  # True from a request until its reply is collected
    # True if the caller finished the ticket during a call; the reply is then dropped
    abandoned: bool = False


@dataclasses.dataclass
class _Job:
    """Request of an episode, or the closing of a session if `episode` is None."""

    run: Callable[[], Observation | None]
    episode: _Episode | None = None
    kind: ReplyKind | None = None
    submitted_s: float = dataclasses.field(default_factory=time.monotonic)
    attempts: int = 0


class EnvPool:
    """Pool of threads that call environment servers. Use it as a context manager, or call `close`.

    The pool retries two kinds of requests, with growing pauses: any request to a full or busy
    server, and a start whose connection failed. After any other failure the pool discards the
    session, and the caller can restart the ticket.

    Args:
      clients: Client of each server by environment name.
      workers: Number of threads, which is the maximum number of concurrent calls.
      max_idle_sessions: Maximum number of idle sessions that are kept for reuse, per environment.
      retry_patience_s: Maximum time in seconds for repeating a request before its failure is
          reported.
      backoff_s: Pause before the first retry, in seconds. It doubles with every further retry and
          has jitter.
      backoff_max_s: Maximum pause between retries, in seconds.
      breaker_failures: Minimum number of consecutive failed calls before a server is unavailable.
      breaker_patience_s: Minimum time from the first to the last of these failures, in seconds.
          Then the run stops.
      close_timeout_s: Maximum time in seconds that `close` waits for running calls and closing
          sessions.

    Attributes:
      patience_s: Time in seconds for which a server may fail all episodes.
    """

    def __init__(
        self,
        clients: Mapping[str, EnvClient],
        *,
        workers: Annotated[int, Range(1)],
        max_idle_sessions: Annotated[int, Range(0)] = 256,
        retry_patience_s: Seconds = 120.0,
        backoff_s: Seconds = 0.1,
        backoff_max_s: Seconds = 5.0,
        breaker_failures: Annotated[int, Range(1)] = 20,
        breaker_patience_s: Seconds = 60.0,
        close_timeout_s: Seconds = 10.0,
    ):
        self.patience_s = breaker_patience_s
        self._retry_patience_s = retry_patience_s
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._close_timeout_s = close_timeout_s
        self._jitter = random.Random()  # spreads retries over time; results do not depend on it
        self._jobs: JobQueue[_Job] = JobQueue()
        # One reentrant lock for all fields below; notified of every reply, failure and crash.
        self._changed = threading.Condition()
        self._episodes: dict[Hashable, _Episode] = {}
        self._replies: collections.deque[Reply] = collections.deque()
        self._servers = {
            name: ServerSessions(
                client,
                max_idle=max_idle_sessions,
                breaker=Breaker(breaker_patience_s, failures=breaker_failures),
                close_timeout_s=close_timeout_s,
            )
            for name, client in clients.items()
        }
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
        """Starts an episode. A ticket can be used again after its last reply was collected.

        The wait before the start grows with `pauses`, the number of failed attempts so far.
        """
        if environment not in self._servers:
            raise ValueError(
                f"environment {environment!r} has no client in this pool; it has "
                f"{sorted(self._servers)}"
            )
        with self._changed:
            server = self._servers[environment]
            episode = self._episodes.get(ticket) or _Episode(ticket, server)
            self._check_free(episode)
            if episode.server is not server:
                self._release(episode)
                episode = _Episode(ticket, server)
            self._episodes[ticket] = episode
            delay_s = self._pause_s(pauses) if pauses else 0.0
            job = _Job(lambda: self._reset(episode, data_idx), episode, ReplyKind.START)
            self._submit(episode, job, delay_s)

    def step(self, ticket: Hashable, action: str) -> None:
        """Sends an action to the ticket's environment."""
        with self._changed:
            episode = self._episode(ticket)
            job = _Job(lambda: self._step(episode, action), episode, ReplyKind.STEP)
            self._submit(episode, job)

    def finish(self, ticket: Hashable) -> None:
        """Forgets a ticket, drops its reply and keeps its session for another episode."""
        with self._changed:
            episode = self._episode(ticket)
            del self._episodes[ticket]
            if episode.waiting:
                kept = [reply for reply in self._replies if reply.ticket != ticket]
                if len(kept) == len(self._replies):
                    episode.abandoned = True  # the worker of the running call releases the session
                    return
                self._replies = collections.deque(kept)
            self._release(episode)

    def is_waiting(self) -> bool:
        """Returns True while a reply from an environment is pending or not yet polled."""
        with self._changed:
            return any(episode.waiting for episode in self._episodes.values())

    def poll(self, timeout_s: float) -> list[Reply]:
        """Returns all available replies; waits at most `timeout_s` seconds if requests are pending.

        Raises:
          ServerUnavailable: A server failed all calls for longer than the configured patience.
            Replies that have arrived are kept; `poll` returns them after `invalidate`.
          RuntimeError: A worker raised an error that does not come from the environment.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._raise_trouble()
                left_s = deadline - time.monotonic()
                if self._replies or left_s <= 0 or not self.is_waiting():
                    break
                self._changed.wait(left_s)
            replies = list(self._replies)
            self._replies.clear()
            for reply in replies:
                self._episodes[reply.ticket].waiting = False
            return replies

    def invalidate(self, environment: str) -> None:
        """Records a restart of a server: its sessions are lost, and its failures are reset."""
        self._servers[environment].invalidate()

    @property
    def open_sessions(self) -> int:
        """Returns the number of open sessions, including idle ones."""
        idle = sum(server.num_idle for server in self._servers.values())
        with self._changed:
            return idle + sum(e.session is not None for e in self._episodes.values())

    def close(self) -> None:
        """Closes every session and joins the threads, within `close_timeout_s` seconds."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for job in self._jobs.take_all():
                if job.episode is None:
                    self._jobs.put(job)
                else:  # no worker uses this session
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
                while (session := server.take_idle()) is not None:
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

    # The methods below are called in the caller's thread, with the lock held.

    def _episode(self, ticket: Hashable) -> _Episode:
        if ticket not in self._episodes:
            raise ValueError(f"ticket {ticket!r} has no episode in this pool; call start first")
        return self._episodes[ticket]

    def _check_free(self, episode: _Episode) -> None:
        if self._closed:
            raise RuntimeError("this environment pool is closed")
        if episode.waiting:
            raise ValueError(
                f"ticket {episode.ticket!r} still waits for a reply; collect it with poll first"
            )

    def _submit(self, episode: _Episode, job: _Job, delay_s: float = 0.0) -> None:
        self._check_free(episode)
        episode.waiting = True
        self._jobs.put(job, delay_s=delay_s)

    def _raise_trouble(self) -> None:
        if self._crash is not None:
            raise RuntimeError("a worker of the environment pool failed") from self._crash
        for server in self._servers.values():
            if (error := server.trouble()) is not None:
                raise error

    def _release(self, episode: _Episode) -> None:
        """Keeps the episode's session for reuse, or closes it."""
        session, episode.session = episode.session, None
        if session is not None and (self._closed or not episode.server.keep(session)):
            self._give_up(episode.server, session)

    def _give_up(self, server: ServerSessions, session: Session) -> None:
        """Queues a job in which a worker closes a session."""
        self._jobs.put(_Job(lambda: server.close_session(session)))

    # The methods below are called in worker threads.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._serve(job)
            except Exception as error:  # noqa: BLE001 - poll hands it to the caller
                with self._changed:
                    self._crash = error
                    self._changed.notify_all()

    def _serve(self, job: _Job) -> None:
        """Runs a job, then stores its reply or queues the job for a retry."""
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
            self._changed.notify_all()  # there is a reply, or a failure that may open a breaker
            if episode.abandoned:
                self._release(episode)
            elif error is not None and self._may_retry(job, error):
                job.attempts += 1
                self._jobs.put(job, delay_s=self._pause_s(job.attempts))
            else:
                self._replies.append(Reply(episode.ticket, job.kind, observation, error))

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
        """Resets a session for the episode: its own session, otherwise an idle or a new one."""
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
                request_id = f"{episode.mark}/0"
                began_s = time.monotonic()
                seen = server.call(server.client.reset, session.number, data_idx, request_id)
                server.check_load(time.monotonic() - began_s, len(self._threads))
                return seen
            except EnvError as error:
                self._lose(episode, error)
                # A kept session may have expired on the server. This is not a failure of the start.
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
        request_id = f"{episode.mark}/{episode.steps + 1}"
        try:
            observation = server.call(server.client.step, session.number, action, request_id)
        except EnvError as error:
            if error.kind not in RETRYABLE:
                self._lose(episode, error)
            raise
        episode.steps += 1
        return observation

    def _lose(self, episode: _Episode, error: EnvError) -> None:
        """Discards the session of an episode, because its state is unknown after a failure."""
        session, episode.session = episode.session, None
        if session is not None and error.cause is not EnvCause.SESSION_LOST:
            self._give_up(episode.server, session)
