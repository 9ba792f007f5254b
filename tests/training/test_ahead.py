"""Collecting in the background: what ends it comes out where somebody waits."""

import threading
import time
import types

import pytest

from agentgym_jax.algorithms.mixture_horizon import Place, TurnLimit
from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.errors import EnvCause, ServerUnavailable
from agentgym_jax.run.run import StopRequested
from agentgym_jax.training.ahead import Collections

MEMORY = types.SimpleNamespace(tasks_taken=0, horizons={})


class Job:
    """As much of a run and its parts as a collection of no episodes asks for."""

    def __init__(self, collect):
        """`collect(should_stop)` is what plays."""
        self.threads = []
        self.was_stopped = False
        self.stop = threading.Event()
        self.run = types.SimpleNamespace(
            seed=0, should_stop=self.stop.is_set, progress=lambda name: None
        )
        limits = [TurnLimit(Place("babyai"), 1)]
        self.parts = types.SimpleNamespace(
            settings=types.SimpleNamespace(
                rollout=types.SimpleNamespace(tasks_per_step=1, group_size=0, max_replacements=0),
                horizon=types.SimpleNamespace(limits=lambda *_, **__: limits),
                environments={"babyai": None},
                resamples=False,
            ),
            sampler=types.SimpleNamespace(reset_statistics=lambda: None),
            train_schedule=types.SimpleNamespace(drawn=lambda *_: [Task("babyai", 0, "GoTo")]),
            collector=types.SimpleNamespace(collect=self.collect),
        )
        self.plays = collect

    def collect(self, requests, *, replacement_stride, on_progress, should_stop):
        self.threads.append(threading.current_thread())
        self.plays(should_stop)
        self.was_stopped = should_stop()


def until(should_stop):
    deadline = time.monotonic() + 20
    while not should_stop() and time.monotonic() < deadline:
        time.sleep(0.001)


def dead(should_stop):
    raise ServerUnavailable(EnvCause.CONNECTION, "gone")


def test_a_dead_server_stops_whoever_waits_for_the_collection():
    job = Job(dead)
    with Collections(job.run, job.parts) as collections:
        collections.begin(MEMORY, 1)
        with pytest.raises(ServerUnavailable):
            collections.wait()
    assert job.threads[0] is not threading.current_thread()


def test_a_stop_request_ends_a_collection_in_the_background():
    job = Job(until)
    with Collections(job.run, job.parts) as collections:
        collections.begin(MEMORY, 1)
        job.stop.set()
        with pytest.raises(StopRequested, match="collecting step 2"):
            collections.wait()


def test_an_error_of_the_learner_ends_the_collection_that_nobody_will_take():
    job = Job(until)
    with pytest.raises(ZeroDivisionError), Collections(job.run, job.parts) as collections:
        collections.begin(MEMORY, 1)
        raise ZeroDivisionError
    assert job.was_stopped and not job.threads[0].is_alive()


def test_without_a_beginning_it_collects_where_it_is_called_and_there_is_nothing_to_wait_for():
    job = Job(dead)
    with Collections(job.run, job.parts) as collections:
        assert collections.wait() < 1
        with pytest.raises(ServerUnavailable):
            collections.take(MEMORY, 0)
    assert job.threads == [threading.current_thread()]
