"""Background rollouts: an error is raised in the thread that waits for the rollout."""

import collections
import threading
import types

import pytest

from agentgym_jax.algorithms.mixture_horizon import Place, TurnLimit
from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.jobs.run import StopRequested
from agentgym_jax.learner.curriculum import AllTasks
from agentgym_jax.rl.background_rollouts import RolloutPrefetcher, turn_versions
from agentgym_jax.rollout.interface import CollectStatistics
from tests.waiting import until

CONTROLLERS = types.SimpleNamespace(tasks_taken=0, horizons={}, results={})


class Job:
    """The parts of a run that the prefetcher uses, with rollouts that have no episodes."""

    def __init__(self, collect):
        """Stores the parts; `collect(should_stop)` replaces the rollout."""
        self.threads = []
        self.was_stopped = False
        self.stop = threading.Event()
        self.run = types.SimpleNamespace(
            seed=0, should_stop=self.stop.is_set, progress=lambda name: None
        )
        limits = [TurnLimit(Place("babyai"), 1)]
        self.parts = types.SimpleNamespace(
            settings=types.SimpleNamespace(
                rollout=types.SimpleNamespace(
                    tasks_per_step=1, group_size=0, max_replacements=0, max_off_policy_steps=1
                ),
                horizon=types.SimpleNamespace(limits=lambda *_, **__: limits),
                environments={"babyai": None},
                controllers=types.SimpleNamespace(curriculum=AllTasks()),
                resamples=False,
                judge=None,
                sampling=None,
            ),
            train_schedule=types.SimpleNamespace(drawn=lambda *_: [Task("babyai", 0, "GoTo")]),
            agent=types.SimpleNamespace(
                sampler=types.SimpleNamespace(reset_statistics=lambda: None),
                collector=types.SimpleNamespace(collect=self.collect),
                judge=None,
            ),
        )
        self.samples = collect

    def collect(self, requests, *, replacement_stride, on_progress, should_stop, score):
        self.threads.append(threading.current_thread())
        self.samples(should_stop)
        self.was_stopped = should_stop()
        outcome = Outcome.ABORTED if self.was_stopped else Outcome.FAILURE
        return [types.SimpleNamespace(outcome=outcome)], CollectStatistics(collections.Counter())


def dead(should_stop):
    raise ServerUnavailable(EnvCause.CONNECTION, "gone")


@pytest.mark.parametrize(
    ("step", "max_turns", "k", "versions"),
    [
        (9, 6, 3, (6, 6, 7, 7, 8, 8)),
        (9, 4, 1, (8, 8, 8, 8)),
        (9, 1, 3, (8,)),  # a single turn need not be old
        (9, 3, 2, (7, 8, 8)),
        (2, 4, 3, (0, 0, 1, 1)),  # there are no weights before the first
        (0, 2, 3, (0, 0)),
    ],
)
def test_turns_are_divided_among_the_versions(step, max_turns, k, versions):
    assert turn_versions(step, max_turns, k) == versions


def test_a_server_failure_in_a_background_rollout_is_raised_on_waiting():
    job = Job(dead)
    with RolloutPrefetcher(job.run, job.parts, 0) as rollouts:
        rollouts.begin(CONTROLLERS, 1)
        with pytest.raises(ServerUnavailable):
            rollouts.wait()
    assert job.threads[0] is not threading.current_thread()


def test_a_stop_request_ends_a_background_rollout():
    job = Job(until)
    with RolloutPrefetcher(job.run, job.parts, 0) as rollouts:
        rollouts.begin(CONTROLLERS, 1)
        job.stop.set()
        with pytest.raises(StopRequested, match="collecting step 2"):
            rollouts.wait()


def test_an_error_of_the_learner_ends_the_background_rollout():
    job = Job(until)
    with pytest.raises(ZeroDivisionError), RolloutPrefetcher(job.run, job.parts, 0) as rollouts:
        rollouts.begin(CONTROLLERS, 1)
        raise ZeroDivisionError
    assert job.was_stopped and not job.threads[0].is_alive()


def test_without_a_thread_rollouts_run_in_the_call():
    job = Job(dead)
    with RolloutPrefetcher(job.run, job.parts, 0) as rollouts:
        assert rollouts.wait() < 1
        with pytest.raises(ServerUnavailable):
            rollouts.take(CONTROLLERS, 0)
    assert job.threads == [threading.current_thread()]
