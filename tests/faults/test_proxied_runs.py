"""Runs behind a faulty proxy, which end like a run without faults and count every fault."""

import os
import signal
import threading

import pytest

from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.build import open_rl
from tests.faults import runs
from tests.faults.proxy import Fault, FaultProxy, Schedule
from tests.faults.sickness import SICK, SICK_OPTIONS, after_the_first_step

LAST_COLLECTED = f"trajectories/step_{runs.STEPS:06d}.jsonl"


def train_behind(proxy, workdir, **changes):
    config = runs.config(proxy.url)
    for section, options in changes.items():
        config[section] |= options
    runs.train(config, workdir)


@pytest.mark.slow
def test_no_kind_of_fault_changes_a_run_and_each_is_counted_by_cause(url, undisturbed, tmp_path):
    workdir = tmp_path / "run"
    deal = Schedule(1, set(Fault) - {Fault.STALL}, calm=20)
    stall = iter([None] * 9 + [Fault.STALL])

    def schedule(route):
        # the evaluation at the end has other failure counts
        if (workdir / LAST_COLLECTED).exists():
            return None
        return (next(stall, None) if route == "/step" else None) or deal(route)

    with FaultProxy(url, schedule) as proxy:
        train_behind(proxy, workdir, client={"step_timeout_s": 15.0})  # reached
    runs.assert_same(workdir, undisturbed)
    assert runs.env_errors(workdir) == runs.expected_errors(proxy.delivered)
    assert set(proxy.injected) == set(Fault)
    assert runs.lost_episodes(workdir) == 0


@pytest.mark.slow
def test_a_killed_and_restarted_server_does_not_change_the_run(servers, url, undisturbed, tmp_path):
    """Checks a killed server, whose next process numbers its sessions from 0 again.

    Old session numbers then belong to other episodes.
    """
    kills = []

    def kill():
        os.kill(servers.pids["tally"], signal.SIGKILL)
        kills.append(proxy.requests["/step"])
        threading.Timer(0.1, servers.ensure_alive).start()

    def schedule(route):
        if route == "/step" and proxy.requests["/step"] == 40:
            kill()
        return None

    proxy = FaultProxy(url, schedule)
    with proxy:
        train_behind(proxy, tmp_path / "run")
    assert kills == [40]
    runs.assert_same(tmp_path / "run", undisturbed)
    assert sum(runs.env_errors(tmp_path / "run").values()) >= 1


@pytest.mark.slow
def test_a_lasting_server_failure_stops_the_run_and_saves_its_state(url, undisturbed, tmp_path):
    """Checks that no step trains without episodes; after the recovery the run continues."""
    workdir = tmp_path / "run"
    with FaultProxy(url, lambda route: None) as proxy:
        config = runs.config(proxy.url)
        # so that only the stop itself saves the earlier steps
        config["checkpoint"]["every"] = runs.STEPS
        for section, options in SICK_OPTIONS.items():
            config[section] |= options
        # One opened job trains several times, so that only the first training compiles.
        with open_rl(config, str(workdir), StopFlag()) as (run, parts):
            for sickness in SICK.values():
                proxy.schedule = after_the_first_step(workdir, sickness)
                # The run must stop because the breaker's patience ends, not because all retries are
                # used up.
                message = "tally server (at .* )?failed (every|[0-9]+ calls).*resume"
                with pytest.raises(ServerUnavailable, match=message):
                    rl.train(run, parts)
                run.checkpoints.wait()
                assert [line["step"] for line in runs.lines(workdir)] == [1]
                assert run.checkpoints.latest_step() == 1
                # This call has the effect of a new start, which discards all sessions.
                parts.agent.environments.pool.invalidate("tally")
            proxy.schedule = lambda route: None
            rl.train(run, parts)
    runs.assert_same(workdir, undisturbed)
