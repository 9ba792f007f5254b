"""Job queue of the pool: order, delay and shutdown."""

import threading
import time

from agentgym_jax.client.job_queue import JobQueue
from tests.waiting import PATIENCE_S


def test_jobs_run_in_the_order_in_which_they_are_due():
    jobs = JobQueue()
    begin = time.monotonic()
    jobs.put("never", delay_s=1e6)
    jobs.put("late", delay_s=0.2)
    jobs.put("first")
    jobs.put("second")
    assert [jobs.get(), jobs.get(), jobs.get()] == ["first", "second", "late"]
    assert time.monotonic() - begin >= 0.2
    jobs.put("now")
    assert jobs.take_all() == ["now", "never"]
    jobs.end()
    assert jobs.get() is None


def test_an_ended_queue_returns_the_remaining_jobs_and_then_none():
    jobs = JobQueue()
    jobs.put("now")
    jobs.put("late", delay_s=0.05)
    jobs.end()
    assert [jobs.get(), jobs.get(), jobs.get()] == ["now", "late", None]


def test_ending_the_queue_wakes_every_waiting_thread():
    jobs = JobQueue()
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(jobs.get())) for _ in range(3)]
    for thread in threads:
        thread.start()
    jobs.end()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert seen == [None] * 3
