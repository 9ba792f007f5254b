"""Backend of a server: the environment, its worker processes and its sessions.

It is independent of the protocol in which clients send their requests.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any

from agentgym_envs.base.host import UNIFORM_OPERATIONS
from agentgym_envs.base.routes import SessionRoute, session_routes
from agentgym_envs.base.served import ServedEnvironment, load_environment
from agentgym_envs.base.sessions import SessionStore
from agentgym_envs.base.workers import Worker

_LONGEST_SWEEP_PERIOD = 30.0  # seconds
_START_SECONDS = 120.0  # time limit for the start of a worker process on a busy machine


@dataclasses.dataclass(frozen=True)
class Backend:
    """An environment with the processes and the session store that serve it."""

    served: ServedEnvironment
    routes: list[SessionRoute]
    store: SessionStore
    workers: list[Worker]
    idle_seconds: float

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Starts the workers, closes idle sessions meanwhile, and stops the workers at the end."""
        shared = contextlib.ExitStack()
        try:
            # runs in a thread because starting programs takes time
            await asyncio.to_thread(shared.enter_context, self.served.shared())
            await asyncio.gather(*(worker.ensure_running() for worker in self.workers))
            period = min(self.idle_seconds / 4, _LONGEST_SWEEP_PERIOD)
            sweeper = asyncio.create_task(self.store.sweep(period))
            yield
            sweeper.cancel()
        finally:
            await asyncio.gather(*(worker.stop() for worker in self.workers))
            await asyncio.to_thread(shared.close)


def make_backend(
    environment_module: str,
    *,
    compat: bool,
    workers: int,
    capacity: int,
    idle_seconds: float,
    busy_seconds: float,
    step_seconds: float,
    options: Mapping[str, Any] | None = None,
) -> Backend:
    """Returns the backend of an environment.

    Args:
      environment_module: Module with `make_served_environment()`, imported here and by the workers.
      compat: True to behave like AgentGym's own server, scoring oddities included.
      workers: Number of processes that run the environments.
      capacity: Maximum number of open sessions.
      idle_seconds: Time without requests after which a session is closed.
      busy_seconds: Maximum time that a request waits for its worker.
      step_seconds: Maximum time that a simulator may take for one request.
      options: Options of `make_served_environment()`.
    """
    if workers < 1:
        raise ValueError(f"a server needs at least one worker, got {workers}")
    served = load_environment(environment_module, options)
    routes = session_routes(served)
    processes = [
        Worker(environment_module, compat, _START_SECONDS, options) for _ in range(workers)
    ]
    stateful = {route.operation for route in routes if route.is_stateful}
    store = SessionStore(
        processes,
        stateful=frozenset(stateful) | UNIFORM_OPERATIONS,
        closed_text=served.compat_closed,
        capacity=capacity,
        idle_seconds=idle_seconds,
        busy_seconds=busy_seconds,
        step_seconds=step_seconds,
    )
    return Backend(served, routes, store, processes, idle_seconds)
