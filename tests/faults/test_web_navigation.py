"""Web navigation with a faulty proxy, or with a killed browser, site or server.

The episodes must equal those of an undisturbed run.
"""

import os
import random
import signal
import threading

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.data_folder import VARIABLE
from agentgym_envs.webarena.browser.launch import require_browser
from agentgym_jax.client.embedded import EmbeddedServers
from tests.faults.plays import ROUTES, assert_counted, play
from tests.faults.proxy import Fault, FaultProxy, Schedule

pytest.importorskip("psutil", reason="processes need: pip install psutil")
try:
    require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)

from tests.faults.processes import browser, descendants, is_alive, site
from tests.waiting import until

TASKS = range(6)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("webarena")))
        modules = {"webarena": "tests.faults.web_tally"}
        with EmbeddedServers(["webarena"], modules=modules) as running:
            yield running


@pytest.fixture(scope="module")
def url(servers):
    return servers.urls["webarena"]


@pytest.fixture(scope="module")
def undisturbed(url):
    """Returns the episodes that every disturbed rollout must equal."""
    played = play(url, "webarena", TASKS, step_timeout_s=60.0)
    assert not played.errors
    outcomes = [episode["outcome"] for episode in played.episodes]
    assert outcomes == ["success", "failure", "failure"] * 2
    return played.episodes


def play_with(disturb, servers, url):
    """Plays all tasks; before each step reaches the server, calls `disturb` with the step's number."""

    def schedule(route):
        if route == "/step":
            disturb(proxy.requests[route])
        return None

    proxy = FaultProxy(url, schedule)
    with proxy:
        return play(proxy.url, "webarena", TASKS, servers=servers, step_timeout_s=60.0)


@pytest.mark.slow
def test_no_kind_of_fault_changes_an_episode_and_each_is_counted_by_cause(url, undisturbed):
    steps = [*Fault, *[Fault.DUPLICATE, Fault.LATE] * 2, *[None] * 10]
    random.Random(0).shuffle(steps)
    elsewhere = Schedule(0, set(Fault) - {Fault.STALL}, calm=20, routes=set(ROUTES) - {"/step"})

    def schedule(route):
        if route == "/step" and steps:
            return steps.pop()
        return elsewhere(route)

    with FaultProxy(url, schedule) as proxy:
        played = play(proxy.url, "webarena", TASKS, step_timeout_s=20.0)  # reached
    assert played.episodes == undisturbed
    assert_counted(played.errors, proxy.delivered)
    assert not steps


@pytest.mark.slow
def test_a_killed_browser_loses_no_episode(servers, url, undisturbed):
    pid = servers.pids["webarena"]
    killed = []

    def kill():
        killed.append(browser(pid))
        killed[-1].kill()

    def disturb(step):
        if step == 4:
            kill()
        if step == 12:  # the kill happens while the step is executed
            threading.Timer(0.05, kill).start()

    played = play_with(disturb, servers, url)
    assert len(killed) == 2 and browser(pid) not in killed
    assert played.episodes == undisturbed
    assert played.errors.total() <= 1


@pytest.mark.slow
def test_a_killed_site_costs_each_episode_at_most_one_attempt(servers, url, undisturbed):
    pid = servers.pids["webarena"]
    victim = site(pid)
    played = play_with(lambda step: victim.kill() if step == 5 else None, servers, url)
    assert site(pid) != victim
    assert played.episodes == undisturbed
    assert set(played.errors) == {"http_status"} and max(played.attempts) == 2


@pytest.mark.slow
def test_a_killed_server_leaves_no_process_and_its_successor_changes_no_episode(
    servers, url, undisturbed
):
    pid = servers.pids["webarena"]
    left = descendants(pid)
    assert site(pid) in left and browser(pid) in left
    played = play_with(
        lambda step: os.kill(pid, signal.SIGKILL) if step == 7 else None, servers, url
    )
    assert servers.pids["webarena"] != pid
    assert played.episodes == undisturbed
    assert played.errors
    until(lambda: not any(map(is_alive, left)))
