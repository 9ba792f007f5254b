"""Servers of the project as child processes, used through the client and the pool."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentgym_jax.client import embedded
from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.errors import EnvCause
from agentgym_jax.client.pool import EnvPool
from tests.env_clients import connect
from tests.waiting import PATIENCE_S, until

NAMES = ["textcraft", "babyai"]


def gone(pid):
    """Returns True if the process has ended.

    A zombie counts as ended: in a container it may have no parent that collects it.
    """
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


@pytest.fixture(scope="module")
def servers():
    with EmbeddedServers(NAMES, arguments=["--capacity=16"]) as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_the_table_agrees_with_the_spec_of_our_server(servers, name):
    spec = connect(servers.urls[name], name).spec()
    row = ORIGINALS[name]
    assert (spec.name, spec.max_turns) == (name, row.max_turns)
    assert spec.action_format == str(row.actions.format)
    assert len(connect(servers.urls[name], name).tasks()) == row.num_tasks <= spec.num_tasks


def test_a_pool_plays_both_environments_and_leaves_no_session(servers):
    clients = {name: connect(servers.urls[name], name) for name in NAMES}
    with EnvPool(clients, workers=8, max_idle_sessions=4) as pool:
        tickets = {(name, i) for name in NAMES for i in range(20)}
        for name, i in sorted(tickets):
            pool.start((name, i), name, i)
        begun, played = set(), set()
        while played != tickets:
            for reply in pool.poll(PATIENCE_S):
                assert reply.error is None
                if reply.ticket not in begun:
                    begun.add(reply.ticket)
                    pool.step(reply.ticket, "inventory")
                else:
                    played.add(reply.ticket)
                    pool.finish(reply.ticket)
    assert all(client.health()["sessions"] == 0 for client in clients.values())


def _restarted(running):
    """Calls `ensure_alive` until it restarts servers; returns the names of these servers.

    A killed process can be a zombie until its other threads have ended, so several calls may be
    needed.
    """
    names = []
    until(lambda: names.extend(running.ensure_alive()) or names)
    return names


def test_a_dead_server_restarts_at_its_address_while_the_others_keep_running(tmp_path):
    made = EmbeddedServers(NAMES, log_folder=tmp_path)
    with pytest.raises(ZeroDivisionError), made as running:
        urls, pids = dict(running.urls), dict(running.pids)
        clients = {name: connect(running.urls[name], name) for name in NAMES}
        with EnvPool(clients, workers=2, max_idle_sessions=2) as pool:
            pool.start("t", "textcraft", 0)
            (reply,) = pool.poll(PATIENCE_S)
            assert reply.error is None
            assert running.ensure_alive() == []
            os.kill(pids["textcraft"], signal.SIGKILL)
            until(lambda: gone(pids["textcraft"]))
            assert _restarted(running) == ["textcraft"]
            pool.invalidate("textcraft")
            pool.step("t", "inventory")
            (reply,) = pool.poll(PATIENCE_S)
            assert reply.error.cause is EnvCause.SESSION_LOST
            pool.start("t", "textcraft", 0)
            (reply,) = pool.poll(PATIENCE_S)
            assert reply.error is None
        assert dict(running.urls) == urls
        assert running.pids["babyai"] == pids["babyai"]
        pids = dict(running.pids)
        raise ZeroDivisionError
    # the servers end with the block, also after an error
    until(lambda: all(gone(pid) for pid in pids.values()))
    assert "ready" in (tmp_path / "babyai.stdout.log").read_text()


def test_a_failed_start_quotes_the_server_and_stops_all_servers(tmp_path):
    servers = EmbeddedServers(["textcraft", "chess"], log_folder=tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)chess server ended with status 1.*neither an env"):
        servers.__enter__()
    assert servers.pids == {}


def test_a_server_that_is_not_ready_in_time_is_stopped():
    servers = EmbeddedServers(["textcraft"], start_timeout_s=0.0)
    with pytest.raises(RuntimeError, match="start_timeout_s"):
        servers.__enter__()
    assert servers.pids == {}


def test_an_environment_listed_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        EmbeddedServers(["textcraft", "textcraft"])


PARENT = """
import time
from agentgym_jax.client.embedded import EmbeddedServers
with EmbeddedServers(["textcraft"]) as servers:
    print(servers.pids["textcraft"], flush=True)
    time.sleep(60)
"""


def test_options_of_an_environment_that_runs_elsewhere_are_ignored():
    with EmbeddedServers([], options={"textcraft": {"depth": 2}}) as servers:
        assert not servers.urls


def test_servers_do_not_outlive_a_killed_trainer():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: gone(pid))


@pytest.mark.slow
def test_a_server_that_reports_progress_gets_more_time_to_start(tmp_path):
    server = embedded._Server("slow", tmp_path, ["slow"])
    server.process = subprocess.Popen(["sleep", "60"])
    server.stdout.touch()

    def build():
        for part in range(80):  # several times as long as the limit
            server.stderr.write_text("#" * part)
            time.sleep(0.1)
        server.stdout.write_text("agentgym_envs slow ready on http://127.0.0.1:4711\n")

    building = threading.Thread(target=build)
    server.stderr.touch()
    building.start()
    try:
        server.wait_ready(4.0)
        assert server.port == 4711
        server.stdout.write_text("")
        with pytest.raises(RuntimeError, match="was not ready in time"):
            server.wait_ready(0.2)
    finally:
        building.join()
        server.process.kill()
        server.process.wait()
