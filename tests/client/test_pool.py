"""Client pool: every ticket gets its own episode's replies, despite failures and delays."""

import random
import threading
import time

import pytest

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.client.pool import EnvPool, ReplyKind
from tests.env_clients import connect
from tests.waiting import PATIENCE_S, until

CAPACITY = (503, {"error": "full", "type": "capacity"})
BUSY = (503, {"error": "in use", "type": "busy"})


def make_pool(url, *, step_timeout_s=PATIENCE_S, **options):
    client = connect(url, step_timeout_s=step_timeout_s)
    defaults = {"workers": 4, "max_idle_sessions": 8, "backoff_s": 0.01, "backoff_max_s": 0.05}
    defaults |= {"close_timeout_s": PATIENCE_S}
    return EnvPool({"textcraft": client}, **defaults | options)


def collect(pool, count):
    """Polls until `count` replies have arrived; returns them by ticket."""
    replies = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(replies) < count and time.monotonic() < deadline:
        for reply in pool.poll(deadline - time.monotonic()):
            assert reply.ticket not in replies
            replies[reply.ticket] = reply
    assert len(replies) == count
    return replies


def one(pool):
    (reply,) = collect(pool, 1).values()
    return reply


def start(pool, tickets):
    """Starts a task of the same number for each ticket; returns the replies."""
    for ticket in tickets:
        pool.start(ticket, "textcraft", ticket)
    return collect(pool, len(tickets))


def begin(pool, data_idx):
    """Starts a task for the ticket `t`; returns the first observation."""
    pool.start("t", "textcraft", data_idx)
    return one(pool).observation.text


def step(pool, action):
    """Makes a step for the ticket `t`; returns the observation."""
    pool.step("t", action)
    return one(pool).observation.text


def test_every_ticket_plays_its_own_task(server):
    with make_pool(server.url) as pool:
        starts = start(pool, range(100, 120))
        assert all(reply.kind is ReplyKind.START for reply in starts.values())
        for turn in range(3):
            for ticket in starts:
                pool.step(ticket, f"a{turn}")
            steps = collect(pool, 20)
        for ticket, reply in steps.items():
            assert reply.observation.text == f"task {ticket}: a0,a1,a2"
            assert reply.kind is ReplyKind.STEP
            assert reply.error is None


def test_slow_and_failing_calls_do_not_change_observations(server, world, drop):
    noise = random.Random(0)
    pauses = [noise.uniform(0, 0.02) for _ in range(200)]
    world.faults = {
        "/create": [CAPACITY, drop, 0.02, CAPACITY],
        "/reset": [0.02, BUSY, drop, drop, 0.01],
        "/step": pauses,
    }
    with make_pool(server.url) as pool:
        assert all(reply.error is None for reply in start(pool, range(12)).values())
        for turn in range(5):
            for ticket in range(12):
                pool.step(ticket, f"a{turn}")
            replies = collect(pool, 12)
        texts = {ticket: reply.observation.text for ticket, reply in replies.items()}
        assert texts == {ticket: f"task {ticket}: a0,a1,a2,a3,a4" for ticket in range(12)}
        assert world.count("/create") >= 15  # 12 sessions and three retries
    assert world.sessions == {}


def test_an_episode_continues_while_another_one_waits(server, world):
    with make_pool(server.url, workers=2) as pool:
        for ticket in ("slow", "quick"):
            pool.start(ticket, "textcraft", 0)
        collect(pool, 2)
        quick_is_done = threading.Event()
        world.faults = {"/step": [quick_is_done.wait]}
        pool.step("slow", "a")
        until(lambda: world.count("/step") == 1)
        for _ in range(5):
            pool.step("quick", "b")
            assert one(pool).ticket == "quick"
        quick_is_done.set()
        assert one(pool).ticket == "slow"


def test_sessions_start_in_parallel(server, world):
    all_have_come = threading.Barrier(4, timeout=PATIENCE_S)
    world.faults = {"/create": [all_have_come.wait] * 4, "/reset": [all_have_come.wait] * 4}
    with make_pool(server.url, workers=4) as pool:
        start(pool, range(4))


def test_start_and_poll_do_not_block(server, world):
    polled = threading.Event()
    world.faults = {"/create": [polled.wait]}
    with make_pool(server.url, workers=1) as pool:
        pool.start("a", "textcraft", 0)
        pool.start("b", "textcraft", 1)
        assert pool.poll(0.0) == []
        assert pool.poll(0.05) == []  # reached
        polled.set()
        collect(pool, 2)


def test_poll_returns_at_once_if_no_call_is_pending(server):
    with make_pool(server.url) as pool:
        assert pool.poll(3600.0) == []


def test_a_finished_session_is_reset_and_reused(server, world):
    with make_pool(server.url) as pool:
        for data_idx in range(5):
            assert begin(pool, data_idx) == f"task {data_idx}"
            assert step(pool, "x") == f"task {data_idx}: x"
            pool.finish("t")
        assert world.count("/create") == 1
        assert pool.open_sessions == 1


def test_idle_sessions_above_the_limit_are_closed(server, world):
    with make_pool(server.url, max_idle_sessions=2) as pool:
        start(pool, range(5))
        for ticket in range(5):
            pool.finish(ticket)
        until(lambda: len(world.sessions) == 2)
        assert pool.open_sessions == 2


def test_an_idle_session_that_expired_is_replaced_without_an_error(server, world):
    with make_pool(server.url) as pool:
        begin(pool, 0)
        pool.finish("t")
        world.sessions.clear()
        assert begin(pool, 1) == "task 1"


@pytest.mark.parametrize("fault", ["drop", (500, b"no"), (200, {"error": "odd"}), (200, b"x")])
def test_a_failed_step_is_reported_once_and_the_ticket_can_start_again(server, world, drop, fault):
    with make_pool(server.url) as pool:
        begin(pool, 5)
        world.faults = {"/step": [drop if fault == "drop" else fault]}
        pool.step("t", "x")
        reply = one(pool)
        assert reply.observation is None
        assert reply.error.cause is not EnvCause.SESSION_LOST
        assert reply.error.retryable_from_reset
        assert world.count("/step") == 1
        pool.step("t", "x")
        assert one(pool).error.cause is EnvCause.SESSION_LOST  # no request was made
        assert world.count("/step") == 1
        assert begin(pool, 5) == "task 5"
        assert step(pool, "y") == "task 5: y"
        until(lambda: 0 not in world.sessions)  # the failed session was closed


def test_the_server_gets_the_number_of_every_request_in_its_episode(server, world):
    with make_pool(server.url) as pool:
        begin(pool, 5)
        # the server rejected the step with BUSY and did not execute it
        world.faults = {"/step": [BUSY, 0]}
        for _ in range(2):
            pool.step("t", "x")
            one(pool)
        pool.start("t", "textcraft", 5)
        one(pool)
    created, *turns = [
        r.headers["x-agentgym-turn"] for r in server.requests if "x-agentgym-turn" in r.headers
    ]
    # the request id of `create` has another prefix than those of reset and steps
    assert created.endswith("/0") and created != turns[0]
    episodes, numbers = zip(*(turn.split("/") for turn in turns), strict=True)
    assert numbers == ("0", "1", "1", "2", "0")
    assert len(set(episodes[:4])) == 1 and episodes[4] != episodes[0]


def test_a_busy_session_is_asked_again(server, world):
    with make_pool(server.url) as pool:
        begin(pool, 5)
        world.faults = {"/step": [BUSY, BUSY]}
        assert step(pool, "x") == "task 5: x"
        assert world.count("/step") == 3


def test_more_tickets_than_the_server_has_capacity_for_are_all_played(server, world):
    world.capacity = 2
    with make_pool(server.url, workers=2) as pool:
        for ticket in range(6):
            pool.start(ticket, "textcraft", ticket)
        done = set()
        while len(done) < 6:
            for reply in pool.poll(PATIENCE_S):
                assert reply.error is None
                if reply.kind is ReplyKind.START:
                    pool.step(reply.ticket, "x")
                else:
                    assert reply.observation.text == f"task {reply.ticket}: x"
                    done.add(reply.ticket)
                    pool.finish(reply.ticket)
        assert world.count("/create") > 2  # some `create` requests were rejected and sent again


def test_a_start_that_is_refused_for_too_long_is_reported(server, world):
    world.capacity = 0
    with make_pool(server.url, retry_patience_s=0.2) as pool:  # reached
        begin = time.monotonic()
        pool.start("t", "textcraft", 0)
        assert one(pool).error.cause is EnvCause.CAPACITY
        assert time.monotonic() - begin >= 0.2


def test_a_missing_task_is_not_retried(server, world):
    world.faults = {"/reset": [(422, {"error": "no task", "type": "unknown_task"})]}
    with make_pool(server.url) as pool:
        pool.start("t", "textcraft", 99999)
        assert not one(pool).error.retryable_from_reset
        assert world.count("/reset") == 1


def test_a_ticket_that_is_finished_early_gives_no_reply_and_leaves_no_session(server, world):
    world.faults = {"/step": [0.2]}
    with make_pool(server.url, max_idle_sessions=0) as pool:
        begin(pool, 0)
        pool.step("t", "x")
        pool.finish("t")
        pool.start("t", "textcraft", 1)  # the same ticket, for another episode
        replies = collect(pool, 1)
        assert replies["t"].observation.text == "task 1"
        time.sleep(0.3)
        assert pool.poll(0.0) == []
        pool.finish("t")
        until(lambda: world.sessions == {})


def test_finishing_a_ticket_drops_its_uncollected_reply(server, world):
    with make_pool(server.url) as pool:
        pool.start("t", "textcraft", 0)
        until(lambda: pool._replies)
        pool.finish("t")
        assert pool.poll(0.0) == []
        assert pool.open_sessions == 1


def test_invalid_calls_are_refused(server):
    with make_pool(server.url) as pool:
        with pytest.raises(ValueError, match="call start first"):
            pool.step("t", "x")
        with pytest.raises(ValueError, match="call start first"):
            pool.finish("t")
        with pytest.raises(ValueError, match="babyai"):
            pool.start("t", "babyai", 0)
        pool.start("t", "textcraft", 0)
        with pytest.raises(ValueError, match="poll first"):
            pool.step("t", "x")
    with pytest.raises(RuntimeError, match="closed"):
        pool.start("u", "textcraft", 0)


def test_the_error_for_a_missing_server_names_its_address(free_port):
    options = {"breaker_failures": 5, "retry_patience_s": 60, "breaker_patience_s": 0.2}  # reached
    with make_pool(f"http://127.0.0.1:{free_port}", **options) as pool:
        pool.start("t", "textcraft", 0)
        with pytest.raises(
            ServerUnavailable,
            match=rf"the textcraft server at http://127.0.0.1:{free_port} failed \d+ calls.*server_gone \d+",
        ):
            pool.poll(3600.0)


def test_a_server_that_returns_in_time_causes_no_error(serve, world, free_port):
    with make_pool(f"http://127.0.0.1:{free_port}") as pool:
        pool.start("t", "textcraft", 3)
        assert pool.poll(0.2) == []  # reached
        with serve(world, free_port):
            assert one(pool).observation.text == "task 3"
            pool.finish("t")


def test_after_a_restart_an_old_session_number_never_reaches_a_new_episode(serve, world, free_port):
    with make_pool(f"http://127.0.0.1:{free_port}") as pool:
        with serve(world, free_port):
            for ticket in ("old", "older"):
                pool.start(ticket, "textcraft", 1)
            collect(pool, 2)
        pool.start("new", "textcraft", 2)
        assert pool.poll(0.2) == []  # reached
        fresh = type(world)()  # a new server, which numbers its sessions from 0 again
        with serve(fresh, free_port):
            collect(pool, 1)
            pool.start("newer", "textcraft", 3)
            collect(pool, 1)
            assert sorted(fresh.sessions) == [0, 1]
            pool.step("old", "x")
            assert one(pool).error.cause is EnvCause.SESSION_LOST
            pool.start("old", "textcraft", 1)
            assert one(pool).observation.text == "task 1"
            # The pool must neither close nor reuse the old session, because its number now belongs
            # to a new episode.
            pool.finish("older")
            pool.start("newest", "textcraft", 4)
            assert one(pool).observation.text == "task 4"
            for ticket, text in (("new", "task 2: y"), ("newer", "task 3: y")):
                pool.step(ticket, "y")
                assert one(pool).observation.text == text
            assert sorted(fresh.sessions) == [0, 1, 2, 3]


def test_an_announced_restart_discards_all_sessions_without_a_request(server, world):
    with make_pool(server.url) as pool:
        for ticket in ("idle", "t"):
            pool.start(ticket, "textcraft", 1)
        collect(pool, 2)
        pool.finish("idle")
        pool.invalidate("textcraft")
        assert pool.open_sessions == 1  # the session of ticket t
        pool.step("t", "x")
        assert one(pool).error.cause is EnvCause.SESSION_LOST
        assert world.count("/step") == 0


def test_closing_during_calls_ends_every_session_and_thread(server, world):
    world.faults = {"/step": [0.3] * 3, "/create": [0, 0, 0, 0, 0, 0, 0.3, 0.3]}
    before = threading.active_count()
    pool = make_pool(server.url)
    start(pool, range(6))
    pool.finish(0)
    for ticket in range(1, 4):
        pool.step(ticket, "x")
    until(lambda: world.count("/step") == 3)
    for ticket in range(10, 20):
        pool.start(ticket, "textcraft", ticket)
    pool.close()
    assert world.sessions == {}
    assert not [t for t in threading.enumerate() if t.name.startswith("env-pool")]
    # up to ten threads for the connections of the test's server
    assert threading.active_count() <= before + 10
    pool.close()


def test_closing_ends_the_session_of_a_ticket_finished_while_queued(server, world):
    pool = make_pool(server.url, workers=1)
    start(pool, range(2))
    world.faults = {"/step": [0.3]}
    pool.step(0, "x")
    until(lambda: world.count("/step") == 1)
    pool.step(1, "x")
    pool.finish(1)
    pool.close()
    assert world.count("/step") == 1
    assert world.sessions == {}


def test_closing_does_not_wait_forever_for_a_hanging_server(server, world):
    world.faults = {"/step": [1e6], "/close": [1e6] * 10}
    pool = make_pool(server.url, step_timeout_s=1e6, close_timeout_s=0.5)  # reached
    start(pool, range(5))
    pool.step(0, "x")
    until(lambda: world.count("/step") == 1)
    pool.close()


def test_poll_raises_an_unexpected_error_of_a_worker(server):
    with make_pool(server.url) as pool:
        begin(pool, 0)
        pool.step("t", {1, 2})  # a set cannot be encoded as JSON
        with pytest.raises(RuntimeError, match="worker") as caught:
            pool.poll(PATIENCE_S)
        assert isinstance(caught.value.__cause__, TypeError)


def test_two_environments_share_the_workers(server, world):
    clients = {name: connect(server.url, name) for name in ("babyai", "textcraft")}
    with EnvPool(clients, workers=2, max_idle_sessions=1) as pool:
        pool.start(("t", 0), "textcraft", 1)
        pool.start(("b", 0), "babyai", 2)
        texts = {ticket: reply.observation.text for ticket, reply in collect(pool, 2).items()}
        assert texts == {("t", 0): "task 1", ("b", 0): "task 2"}
        pool.start(("t", 0), "babyai", 3)  # a ticket may be started in another environment
        assert one(pool).observation.text == "task 3"
    assert world.sessions == {}
