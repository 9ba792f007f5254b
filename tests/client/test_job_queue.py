"""Job queue of the pool: order, delay and shutdown."""

import threading
import time

from agentgym_jax.client.job_queue import JobQueue


def test_jobs_run_in_order_and_a_delayed_one_does_not_hold_up_the_next():
    jobs = JobQueue()
    jobs.put("late", delay_s=2.0)
    jobs.put("first")
    jobs.put("second")
    begin = time.monotonic()
    assert [jobs.get(), jobs.get()] == ["first", "second"]
    assert time.monotonic() - begin < 1.9
    assert jobs.get() == "late"
    assert time.monotonic() - begin > 1.9


def test_an_earlier_delay_is_served_before_a_later_one_that_was_put_first():
    jobs = JobQueue()
    jobs.put("b", delay_s=0.1)
    jobs.put("a", delay_s=0.05)
    assert [jobs.get(), jobs.get()] == ["a", "b"]


def test_an_ended_queue_gives_the_remaining_items_and_then_nothing():
    jobs = JobQueue()
    jobs.put("late", delay_s=0.05)
    jobs.put("now")
    jobs.end()
    assert [jobs.get(), jobs.get(), jobs.get()] == ["now", "late", None]


def test_the_end_wakes_every_waiting_thread():
    jobs = JobQueue()
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(jobs.get())) for _ in range(3)]
    for thread in threads:
        thread.start()
    jobs.end()
    for thread in threads:
        thread.join(5)
    assert seen == [None] * 3


def test_taking_everything_leaves_nothing():
    jobs = JobQueue()
    jobs.put("late", delay_s=9)
    jobs.put("now")
    assert jobs.take_all() == ["now", "late"]
    jobs.end()
    assert jobs.get() is None
