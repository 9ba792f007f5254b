"""Machine statistics in the log: they show growth of memory, sessions, files or threads."""

import subprocess
import sys
import threading
import types

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.telemetry import machine
from agentgym_jax.telemetry.metrics import lookup
from tests.env_clients import connect
from tests.waiting import PATIENCE_S

MIB = 1.0 / 1024


def test_host_memory_includes_newly_allocated_memory():
    before = machine.measure()["system/host_memory_gib"]
    block = np.ones(64 * 2**20, np.uint8)
    assert machine.measure()["system/host_memory_gib"] - before > 48 * MIB
    del block


def test_an_array_counts_as_device_memory_until_it_is_deleted():
    before = machine.measure()["system/device_memory_gib"]
    array = jnp.ones((8, 2**20), jnp.float32)
    grown = machine.measure()["system/device_memory_gib"] - before
    assert grown == pytest.approx(32 * MIB, rel=0.05)
    del array
    assert machine.measure()["system/device_memory_gib"] == pytest.approx(before, abs=MIB)


def test_device_memory_is_that_of_the_device_with_the_most():
    def device(use, peak):
        stats = {"bytes_in_use": use * 2**30, "peak_bytes_in_use": peak * 2**30}
        return types.SimpleNamespace(memory_stats=lambda: stats)

    assert machine.measure_devices([device(1, 7), device(3, 5)]) == {
        "system/device_memory_gib": 3.0,
        "system/device_memory_peak_gib": 7.0,
    }


def test_memory_of_a_child_process_counts_until_it_ends():
    before = machine.measure()["system/child_memory_gib"]
    code = "x = bytearray(b'1' * 2**25); print('', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert machine.measure()["system/child_memory_gib"] - before > 30 * MIB
        child.communicate(b"\n")
    assert machine.measure()["system/child_memory_gib"] == pytest.approx(before, abs=MIB)


def test_open_files_and_threads_are_counted(tmp_path):
    before = machine.measure()
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with open(tmp_path / "a", "w"), open(tmp_path / "b", "w"):
        during = machine.measure()
    end.set()
    for thread in threads:
        thread.join()
    assert during["system/open_files"] == before["system/open_files"] + 2
    assert during["system/threads"] == before["system/threads"] + 3


def test_playing_and_idle_sessions_count_as_open():
    with in_process_servers(["textcraft"], {}) as transports:
        client = connect("inprocess://textcraft", transport=transports["textcraft"])
        with EnvPool({"textcraft": client}, workers=2, max_idle_sessions=1) as pool:

            def count():
                return machine.measure(lambda: pool.open_sessions)["system/open_sessions"]

            assert count() == 0
            for ticket in range(3):
                pool.start(ticket, "textcraft", ticket)
            replies = 0
            while replies < 3:
                replies += len(pool.poll(PATIENCE_S))
            assert count() == 3
            for ticket in range(3):
                pool.finish(ticket)
            assert count() == 1  # the pool keeps one idle session


def test_every_measured_metric_is_in_the_metric_table():
    for name in machine.measure(lambda: 0):
        assert lookup(name).unit
