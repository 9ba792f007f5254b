"""What a run asks of its machine is in its log: more memory, sessions, files or threads show."""

import subprocess
import sys
import threading
import time
import types

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.in_process import in_process_servers
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.metrics import lookup
from agentgym_jax.run import monitor

MIB = 1.0 / 1024


def test_memory_that_the_process_takes_is_in_the_next_measurement():
    before = monitor.measure()["system/host_memory_gib"]
    block = np.ones(64 * 2**20, np.uint8)
    assert monitor.measure()["system/host_memory_gib"] - before > 48 * MIB
    del block


def test_an_array_counts_as_device_memory_until_it_is_gone():
    before = monitor.measure()["system/device_memory_gib"]
    array = jnp.ones((8, 2**20), jnp.float32)
    grown = monitor.measure()["system/device_memory_gib"] - before
    assert grown == pytest.approx(32 * MIB, rel=0.05)
    del array
    assert monitor.measure()["system/device_memory_gib"] == pytest.approx(before, abs=MIB)


def test_the_fullest_device_counts_with_its_peak_where_a_backend_knows_them():
    def device(use, peak):
        stats = {"bytes_in_use": use * 2**30, "peak_bytes_in_use": peak * 2**30}
        return types.SimpleNamespace(memory_stats=lambda: stats)

    assert monitor.of_devices([device(1, 7), device(3, 5)]) == {
        "system/device_memory_gib": 3.0,
        "system/device_memory_peak_gib": 7.0,
    }


def test_a_process_that_was_started_counts_until_it_ends():
    before = monitor.measure()["system/child_memory_gib"]
    code = "x = bytearray(b'1' * 2**25); print('', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert monitor.measure()["system/child_memory_gib"] - before > 30 * MIB
        child.communicate(b"\n")
    assert monitor.measure()["system/child_memory_gib"] == pytest.approx(before, abs=MIB)


def test_open_files_and_threads_are_counted(tmp_path):
    before = monitor.measure()
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with open(tmp_path / "a", "w"), open(tmp_path / "b", "w"):
        during = monitor.measure()
    end.set()
    for thread in threads:
        thread.join()
    assert during["system/open_files"] == before["system/open_files"] + 2
    assert during["system/threads"] == before["system/threads"] + 3


def test_sessions_are_open_while_they_play_or_wait_for_another_episode():
    with in_process_servers(["textcraft"], {}) as transports:
        client = EnvClient(
            "inprocess://textcraft",
            "textcraft",
            connect_timeout_s=5,
            step_timeout_s=5,
            transport=transports["textcraft"],
        )
        with EnvPool({"textcraft": client}, workers=2, max_idle_sessions=1) as pool:

            def count():
                return monitor.measure(lambda: pool.open_sessions)["system/open_sessions"]

            assert count() == 0
            for ticket in range(3):
                pool.start(ticket, "textcraft", ticket)
            replies, deadline = 0, time.monotonic() + 20
            while replies < 3 and time.monotonic() < deadline:
                replies += len(pool.poll(1.0))
            assert count() == 3
            for ticket in range(3):
                pool.finish(ticket)
            assert count() == 1  # as many as may be kept


def test_everything_measured_has_a_meaning_and_a_unit():
    for name in monitor.measure(lambda: 0):
        assert lookup(name).unit
