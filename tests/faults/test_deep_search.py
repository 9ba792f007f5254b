"""Deep search with a faulty proxy and with a dying server: the episodes must not change.

Every search reduces the reward, so repeating or losing a search changes the episode.
"""

import os
import signal

import pytest

from agentgym_envs.data_folder import VARIABLE
from agentgym_jax.client.embedded import EmbeddedServers
from tests.envs.searchqa import topics
from tests.faults.plays import ROUTES, assert_counted, play
from tests.faults.proxy import Fault, FaultProxy, Schedule

for package in ("Stemmer", "tantivy"):
    pytest.importorskip(package, reason='engines need: pip install -e ".[search]"')

# The scripted agent finds the answers to questions about capitals, but not about code words.
CAPITALS = range(topics.CAPITALS, topics.CAPITALS + 16)
TASKS = [*CAPITALS, *range(16)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searchqa")
    options = topics.options(folder, search_cost=0.1, free_searches=0, format_score=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "data"))
        with EmbeddedServers(["searchqa"], options={"searchqa": options}) as running:
            yield running


@pytest.fixture(scope="module")
def url(servers):
    return servers.urls["searchqa"]


@pytest.fixture(scope="module")
def undisturbed(url):
    """Returns the episodes that every disturbed rollout must equal."""
    played = play(url, "searchqa", TASKS)
    assert not played.errors
    outcomes = [episode["outcome"] for episode in played.episodes]
    assert outcomes == ["success"] * len(CAPITALS) + ["failure"] * 16
    return played.episodes


@pytest.mark.slow
def test_no_kind_of_fault_changes_an_episode_and_each_is_counted_by_cause(url, undisturbed):
    deal = Schedule(3, set(Fault) - {Fault.STALL}, calm=20, routes=ROUTES)
    stall = iter([None] * 9 + [Fault.STALL])

    def schedule(route):
        return (next(stall, None) if route == "/step" else None) or deal(route)

    with FaultProxy(url, schedule) as proxy:
        played = play(proxy.url, "searchqa", TASKS, step_timeout_s=15.0)  # reached
    assert played.episodes == undisturbed
    assert_counted(played.errors, proxy.delivered)
    assert set(proxy.injected) == set(Fault)


def test_a_killed_server_is_restarted_without_changing_episodes(servers, url, undisturbed):
    victim = servers.pids["searchqa"]

    def schedule(route):
        if route == "/step" and proxy.requests[route] == 20:
            os.kill(victim, signal.SIGKILL)
        return None

    proxy = FaultProxy(url, schedule)
    with proxy:
        played = play(proxy.url, "searchqa", TASKS, servers=servers)
    assert servers.pids["searchqa"] != victim
    assert played.episodes == undisturbed
    assert played.errors
