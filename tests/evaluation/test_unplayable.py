"""Evaluations with tasks whose environment always fails, which must not affect the other scores.

If the whole server fails, the evaluation ends with an error.
"""

import pytest

from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.oracle_clients import ExpertClient
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from tests.evaluation.playing_parts import ALL_TASKS, maze, play, stumbling

ALWAYS = 10**6
BRIEF_S = 0.2  # patience that the tests reach


@pytest.fixture(scope="module")
def finished():
    """Returns the episodes of the first three tasks, as an earlier evaluation recorded them."""
    with maze("expert") as collector:
        played = play(collector, ALL_TASKS[:3]).trajectories
    return {(t.item_id, t.sample): t for t in played}


def outcomes(result):
    return {e.item_id: e.outcome for e in result.sampled}


def resumed(finished, client_class, tasks=ALL_TASKS[:5], **options):
    with maze(
        "expert", client_class=client_class, patience_s=BRIEF_S, workers=1, **options
    ) as collector:
        return play(collector, tasks, finished=finished)


class FailsEveryStepOf(ExpertClient):
    """A client that starts every episode but fails every step of the episodes of `tasks`."""

    tasks = {3, 4}

    def reset(self, session, data_idx, request_id=""):
        self.__dict__.setdefault("at", {})[session] = data_idx
        return super().reset(session, data_idx, request_id)

    def step(self, session, action, request_id=""):
        if self.at[session] in self.tasks:
            raise EnvError(EnvCause.HTTP_STATUS, "status 500: out of memory")
        return super().step(session, action, request_id)


class FailsItsSecondStep(FailsEveryStepOf):
    """A client whose first step of an episode of `tasks` succeeds and whose later steps fail."""

    def step(self, session, action, request_id=""):
        if request_id.endswith("/1"):
            return ExpertClient.step(self, session, action, request_id)
        return super().step(session, action, request_id)


@pytest.mark.parametrize(
    "client_class", [stumbling({3: ALWAYS, 4: ALWAYS}), FailsEveryStepOf], ids=["starts", "steps"]
)
def test_if_only_unplayable_tasks_are_left_they_are_invalid_and_the_evaluation_ends(
    finished, client_class
):
    result = resumed(finished, client_class)
    assert outcomes(result) == {f"maze_{i}": Outcome.SUCCESS for i in range(3)} | {
        "maze_3": Outcome.ENV_ERROR,
        "maze_4": Outcome.ENV_ERROR,
    }
    # Each of the two samples used all its attempts, as after any failure.
    assert all(t.attempts >= 6 and t.error for t in result.trajectories[3:])


def test_tasks_that_use_up_all_attempts_without_an_outage_are_invalid(finished):
    """Checks permanent failures that each follow a successful step of the same episode.

    No outage is detected before the last attempt has failed.
    """
    options = dict(max_attempts=1, max_replacements=0)
    with maze("expert", client_class=FailsItsSecondStep, patience_s=1e9, **options) as collector:
        result = play(collector, ALL_TASKS[:5], finished=finished)
    assert list(outcomes(result).values())[3:] == [Outcome.ENV_ERROR] * 2


def test_unplayable_tasks_do_not_keep_others_from_being_played(finished):
    """Checks that failing tasks which occupy all workers at first do not block the other tasks.

    The failing tasks start first, and their restarted episodes have priority.
    """
    broken = {i: ALWAYS for i in range(3, 12)}
    tasks = [Task("maze", i, "maze") for i in range(14)]
    result = resumed(finished, stumbling(broken), tasks, max_attempts=1, max_replacements=0)
    assert outcomes(result) == {
        f"maze_{i}": Outcome.ENV_ERROR if i in broken else Outcome.SUCCESS for i in range(14)
    }


def test_episodes_of_this_process_count_like_those_of_an_earlier_one():
    with maze(
        "expert", client_class=stumbling({3: ALWAYS, 4: ALWAYS}), patience_s=BRIEF_S
    ) as collector:
        collector.rows.agent.concurrency = 2
        result = play(collector, ALL_TASKS)
    assert list(outcomes(result).values()).count(Outcome.ENV_ERROR) == 2


@pytest.mark.parametrize(
    "client_class",
    [
        stumbling({i: ALWAYS for i in range(6)}),
        type("All", (FailsEveryStepOf,), {"tasks": range(6)}),
    ],
    ids=["starts", "steps"],
)
def test_an_outage_on_previously_played_tasks_ends_the_evaluation(finished, client_class):
    with pytest.raises(ServerUnavailable, match="every .* of 2 tasks"):
        resumed(finished, client_class)


def test_a_server_without_any_other_success_is_treated_as_failing(finished):
    key, trajectory = next(iter(finished.items()))
    with pytest.raises(ServerUnavailable):
        resumed({}, stumbling({3: ALWAYS, 4: ALWAYS}), ALL_TASKS[3:5])
    with maze(
        "expert", client_class=stumbling({0: ALWAYS, 1: ALWAYS}), patience_s=BRIEF_S
    ) as collector:
        with pytest.raises(ServerUnavailable):
            play(collector, ALL_TASKS[:2], samples=2, finished={key: trajectory})


def test_a_task_that_fails_after_an_earlier_success_is_not_an_outage(finished):
    """Checks that a task which succeeded earlier but fails now does not count as an outage."""
    shortest = min(finished.values(), key=lambda t: len(t.turns))
    broken = int(shortest.item_id.removeprefix("maze_"))
    both = finished | {(item, 1): t for (item, _), t in finished.items()}
    del both[shortest.item_id, 1]
    faulty = stumbling({broken: ALWAYS, 4: ALWAYS})
    with maze("expert", client_class=faulty, patience_s=BRIEF_S) as collector:
        result = play(collector, [*ALL_TASKS[:3], ALL_TASKS[4]], samples=2, finished=both)
    assert [e.outcome for e in result.sampled].count(Outcome.ENV_ERROR) == 3


def test_a_server_that_never_answers_ends_the_evaluation(finished):
    class Gone(ExpertClient):
        def create(self, request_id=""):
            raise EnvError(EnvCause.SERVER_GONE, "nobody listens")

    with pytest.raises(ServerUnavailable, match="failed .* calls in a row"):
        resumed(finished, Gone, [Task("maze", i, "maze") for i in range(11)])


def test_a_stop_while_only_failing_tasks_are_left_aborts_the_rest(finished):
    """Checks that a stop aborts the remaining task when only failing tasks are left.

    One worker alternates between the two tasks. If both ended in the first round, no task would be
    left to abort.
    """
    seen = []

    def stop():
        return any(t.outcome is Outcome.ENV_ERROR for t in seen)

    faulty = stumbling({3: ALWAYS, 4: ALWAYS})
    with maze("expert", client_class=faulty, patience_s=BRIEF_S, workers=1) as collector:
        result = play(
            collector, ALL_TASKS[:5], finished=finished, stop=stop, on_episode=seen.append
        )
        assert not collector.pool._episodes
    assert list(outcomes(result).values())[3:] == [Outcome.ENV_ERROR, Outcome.ABORTED]


def test_progress_never_decreases_and_ends_complete(finished):
    seen = []
    with maze(
        "expert", client_class=stumbling({3: ALWAYS, 4: ALWAYS}), patience_s=BRIEF_S
    ) as collector:
        play(collector, finished=finished, on_progress=lambda *counts: seen.append(counts[:2]))
    assert seen[-1] == (6, 6) and {total for _, total in seen} == {6}
