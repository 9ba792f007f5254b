"""The session store: ids, capacity, expiry and closing, with a real worker process."""

import asyncio
import functools
import os
import signal

import pytest

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.sessions import MAX_HISTORY, SessionStore
from agentgym_envs.base.workers import Worker
from tests.envs.serving import DOOR


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def with_store(**changes):
    """Returns a decorator that runs an async test with a store, whose `clock` the test advances."""

    def decorate(test):
        @functools.wraps(test)
        def run():
            async def main():
                clock = Clock()
                worker = Worker(DOOR, False, 60.0)
                options = {
                    "stateful": frozenset({"reset", "step"}),
                    "closed_text": "{id} was torn down",
                    "capacity": 4,
                    "idle_seconds": 10.0,
                    "busy_seconds": 5.0,
                    "step_seconds": 5.0,
                    "clock": clock,
                    **changes,
                }
                store = SessionStore([worker], **options)
                try:
                    await test(store, clock)
                finally:
                    await worker.stop()

            asyncio.run(main())

        del run.__wrapped__  # otherwise pytest would use the arguments of the test as fixtures
        return run

    return decorate


async def new_id(store) -> int:
    await store.create()
    return store._next_id - 1


async def fault_of(awaitable) -> ErrorKind:
    with pytest.raises(EnvironmentFault) as caught:
        await awaitable
    return caught.value.kind


@with_store()
async def test_ids_count_from_zero_and_are_never_reused(store, clock):
    assert [await store.create(), await store.create()] == [b'{"id":0}', b'{"id":1}']
    assert await store.close(1)
    assert await store.create() == b'{"id":2}'


@with_store(capacity=2)
async def test_sessions_that_are_being_created_use_a_slot(store, clock):
    made = await asyncio.gather(*(store.create() for _ in range(4)), return_exceptions=True)
    assert [getattr(answer, "kind", answer) for answer in made] == [
        b'{"id":0}',
        b'{"id":1}',
        ErrorKind.CAPACITY,
        ErrorKind.CAPACITY,
    ]
    assert len(store) == 2


@with_store()
async def test_a_request_that_waited_for_a_closing_session_is_an_error(store, clock):
    session_id = await new_id(store)
    await store.call(session_id, "reset", 0)
    slow = asyncio.create_task(store.call(session_id, "step", "sleep 0.2"))
    closing = asyncio.create_task(store.close(session_id))
    late = asyncio.create_task(fault_of(store.call(session_id, "step", "open")))
    assert b"you did sleep" in await slow
    assert await closing is True
    assert await late is ErrorKind.UNKNOWN_SESSION


@with_store()
async def test_a_request_that_runs_while_the_server_ends_starts_no_process(store, clock):
    session_id, worker = await new_id(store), store._workers[0]
    await store.call(session_id, "reset", 0)
    running = asyncio.create_task(fault_of(store.call(session_id, "step", "sleep 1")))
    await asyncio.sleep(0.05)
    await worker.stop()
    assert await running is ErrorKind.SIMULATOR
    assert worker.generation == 1


@with_store(capacity=1)
async def test_a_session_whose_start_failed_uses_no_slot(store, clock):
    worker = store._workers[0]
    worker._environment_module = "a_module_that_is_not_there"
    assert await fault_of(store.create()) is ErrorKind.SIMULATOR
    worker._environment_module = DOOR
    assert len(store) == 0
    await new_id(store)


@with_store()
async def test_idle_sessions_expire_but_used_sessions_stay(store, clock):
    # `busy` is examined first: closing another session waits until the worker is free.
    busy, used, idle = [await new_id(store) for _ in range(3)]
    await store.call(busy, "reset", 0)
    clock.now += 8
    await store.call(used, "observation", None)
    long = asyncio.create_task(store.call(busy, "step", "sleep 0.2"))
    await asyncio.sleep(0.05)
    clock.now += 8
    assert await store.close_idle() == [idle]
    await long
    # the session counts as in use until the long request ends
    assert await store.close_idle() == []
    assert len(store) == 2


@with_store()
async def test_a_refused_operation_is_not_replayed(store, clock):
    session_id = await new_id(store)
    assert await fault_of(store.call(session_id, "reset", 99)) is ErrorKind.UNKNOWN_TASK
    await store.call(session_id, "reset", 1)
    await store.call(session_id, "step", "knock")
    await store._workers[0].kill()
    assert b"2: you did knock" in await store.call(session_id, "step", "knock")


@with_store()
async def test_a_session_is_closed_if_its_worker_is_killed_during_its_restart(store, clock):
    session_id = await new_id(store)
    worker = store._workers[0]
    await worker.kill()
    killed = worker.pid
    failed = asyncio.create_task(fault_of(store.call(session_id, "observation", None)))
    while worker.pid == killed:
        await asyncio.sleep(0)
    os.kill(worker.pid, signal.SIGKILL)
    assert await failed is ErrorKind.SIMULATOR
    assert len(store) == worker.sessions == 0
    assert await fault_of(store.call(session_id, "observation", None)) is ErrorKind.UNKNOWN_SESSION


@with_store()
async def test_a_reset_begins_a_new_history(store, clock):
    session_id = await new_id(store)
    await store.call(session_id, "reset", 0)
    await store.call(session_id, "step", "dice")  # a replay could not repeat this step
    await store.call(session_id, "reset", 2)
    await store._workers[0].kill()
    assert await store.call(session_id, "observation", None) == b'"door 2 is shut"'


@with_store()
async def test_an_episode_too_long_for_a_replay_ends_with_its_process(store, clock):
    session_id = await new_id(store)
    await store.call(session_id, "reset", 0)
    for _ in range(MAX_HISTORY - 1):
        await store.call(session_id, "step", "knock")
    await store._workers[0].kill()
    assert await store.call(session_id, "observation", None) == b'"1999: you did knock"'
    await store.call(session_id, "step", "knock")
    await store._workers[0].kill()
    assert await fault_of(store.call(session_id, "observation", None)) is ErrorKind.SIMULATOR
    assert len(store) == 0
