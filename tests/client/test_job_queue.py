"""Job queue of the pool: order, delay and shutdown."""

import threading
import time

from agentgym_jax.client.job_queue import JobQueue
from tests.waiting import PATIENCE_S


def test_a_delayed_job_does_not_block_later_jobs():
    jobs = JobQueue()
    jobs.put("late", delay_s=1e6)
    jobs.put("first")
    jobs.put("second")
    assert [jobs.get(), jobs.get()] == ["first", "second"]


def test_a_delayed_job_runs_once_its_delay_has_passed():
    jobs = JobQueue()
    begin = time.monotonic()
    jobs.put("late", delay_s=0.2)
    assert jobs.get() == "late"
    assert time.monotonic() - begin >= 0.2


def test_the_job_whose_delay_ends_first_runs_first():
    jobs = JobQueue()
    jobs.put("b", delay_s=1e6)
    jobs.put("a", delay_s=0.05)
    assert jobs.get() == "a"
    assert jobs.take_all() == ["b"]


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


def test_take_all_empties_the_queue():
    jobs = JobQueue()
    jobs.put("late", delay_s=9)
    jobs.put("now")
    assert jobs.take_all() == ["now", "late"]
    jobs.end()
    assert jobs.get() is None
