"""The session store: ids, one request at a time, capacity, idle expiry, release."""

import threading
import time

import pytest

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.sessions import SessionStore


class Counter(Environment):
    """Counts its steps slowly enough for two threads to collide; knows when it was closed."""

    def __init__(self):
        self.steps = 0
        self.closes = 0

    def reset(self, data_idx):
        return StepResult("zero", 0, 0, False)

    def step(self, action):
        before = self.steps
        time.sleep(0.002)  # a lost update shows if two threads are in here
        self.steps = before + 1
        return StepResult(str(self.steps), 0, 0, False)

    def expert_action(self):
        return "count"

    def valid_actions(self):
        return ["count"]

    def close(self):
        self.closes += 1


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def make_store(**changes) -> SessionStore:
    options = {"capacity": 4, "idle_seconds": 10.0, "wait_seconds": 5.0, **changes}
    return SessionStore(Counter, **options)


def new_id(store) -> int:
    with store.create() as session:
        return session.id


def fault_of(call) -> ErrorKind:
    with pytest.raises(EnvironmentFault) as caught:
        call()
    return caught.value.kind


def use(store, session_id):
    with store.use(session_id):
        pass


def test_ids_count_from_zero_and_are_never_given_again():
    store = make_store()
    assert [new_id(store), new_id(store)] == [0, 1]
    assert store.close(1)
    assert new_id(store) == 2


def test_two_steps_on_one_session_follow_each_other():
    store = make_store()
    session_id = new_id(store)

    def steps():
        for _ in range(10):
            with store.use(session_id) as session:
                session.environment.step("count")

    threads = [threading.Thread(target=steps) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.use(session_id) as session:
        assert session.environment.steps == 40


def test_a_session_that_stays_in_use_is_busy():
    store = make_store(wait_seconds=0.01)
    session_id = new_id(store)
    with store.use(session_id):
        assert fault_of(lambda: use(store, session_id)) is ErrorKind.BUSY
    use(store, session_id)


def test_a_full_store_refuses_and_a_closed_session_makes_room():
    store = make_store(capacity=2)
    first, _ = new_id(store), new_id(store)
    assert fault_of(lambda: new_id(store)) is ErrorKind.CAPACITY
    store.close(first)
    assert new_id(store) == 2
    assert len(store) == 2


def test_an_unknown_id_is_unknown_and_closing_it_says_so():
    store = make_store()
    assert fault_of(lambda: use(store, 0)) is ErrorKind.UNKNOWN_SESSION
    assert store.close(0) is False


def test_closing_releases_the_environment_once():
    store = make_store()
    with store.create() as session:
        environment = session.environment
    assert (store.close(session.id), store.close(session.id)) == (True, False)
    assert environment.closes == 1
    assert fault_of(lambda: use(store, session.id)) is ErrorKind.UNKNOWN_SESSION


def test_a_thread_that_waited_for_a_session_finds_it_closed():
    store = make_store()
    session_id = new_id(store)
    kinds = []
    with store.use(session_id) as session:
        waiting = threading.Thread(
            target=lambda: kinds.append(fault_of(lambda: use(store, session_id)))
        )
        waiting.start()
        time.sleep(0.05)
        store.discard(session)
    waiting.join()
    assert kinds == [ErrorKind.UNKNOWN_SESSION]


def test_a_session_whose_start_failed_takes_no_slot_and_is_released():
    store = make_store(capacity=1)
    with pytest.raises(RuntimeError), store.create() as session:
        raise RuntimeError("the first reset failed")
    assert session.environment.closes == 1
    assert len(store) == 0
    new_id(store)


def test_idle_sessions_expire_and_used_ones_stay():
    clock = Clock()
    store = make_store(clock=clock)
    idle, used, busy = new_id(store), new_id(store), new_id(store)
    clock.now += 8
    use(store, used)
    with store.use(busy):
        clock.now += 8
        assert store.close_idle() == [idle]
    assert len(store) == 2
    assert store.close_idle() == []  # the end of the long request counts as use


def test_the_sweeper_closes_idle_sessions_by_itself():
    store = make_store(idle_seconds=0.05)
    new_id(store)
    store.start_sweeping(0.02)
    deadline = time.monotonic() + 10
    while len(store) and time.monotonic() < deadline:
        time.sleep(0.01)
    store.stop_sweeping()
    assert len(store) == 0


def test_closing_all_leaves_nothing():
    store = make_store()
    for _ in range(3):
        new_id(store)
    store.close_all()
    assert len(store) == 0


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"idle_seconds": 0}, {"wait_seconds": -1}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="a session store needs"):
        make_store(**wrong)
