"""Values, failures and stops on which the processes of a run agree."""

import json
import os
import pathlib
import sys
import types

import numpy as np
import pytest

from agentgym_jax.cli import process_setup
from agentgym_jax.mesh import cluster, processes
from tests.processes import launch

SCRIPT = pathlib.Path(__file__).with_name("agreement.py")


def run(scenarios, count, folder, **options):
    """Returns the results of scenarios in several processes: a list per scenario."""

    def command(flags, i):
        return [sys.executable, str(SCRIPT), scenarios, *(() if options else flags)]

    statuses, outputs = launch.finish(command, count, devices=count, folder=folder, **options)
    assert statuses == [0] * count, outputs
    found = [json.loads(output.splitlines()[-1]) for output in outputs]
    return {name: [own[name] for own in found] for name in found[0]}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Returns the results of scenarios in the same three processes; the last scenario fails."""
    scenarios = "values+difference+outage+stop+failure"
    return run(scenarios, 3, tmp_path_factory.mktemp("three"))


def test_all_processes_get_the_same_values(three):
    found = three["values"]
    for i, own in enumerate(found):
        assert own["index"] == [0, 1, 2]
        assert own["arrays"] == [[0] * 3, [1] * 3, [2] * 3]
        assert own["types"] == ["int8"]
        assert own["broadcast"] == "from 0"
        assert own["places"] == [[0, 1], [2, 4], [3]][i]  # every task has one process
    assert sorted(sum((own["part"] for own in found), [])) == list(range(7))
    assert min(found[0]["entered"]) == found[0]["entered"][0]


def test_a_different_fact_is_refused_in_all_processes_with_both_values(three):
    for found in three["difference"]:
        assert found.startswith("ProcessesError: processes ")
        assert "differ in learning rate: " in found
        assert "1e-3" in found and "1e-4" in found


def test_a_failed_process_ends_the_waits_of_the_others_with_its_message(three):
    waiting, failed, other = three["failure"]
    assert failed == "OSError: the disk is full"
    for found in (waiting, other):
        assert found.startswith("ProcessesError")
        assert found.endswith("process 1: OSError: the disk is full")


def test_an_outage_of_one_process_is_raised_in_all(three):
    first, second, third = three["outage"]
    assert first == third == "ServerUnavailable: server_gone: process 1: coin is gone"
    assert second == "ServerUnavailable: server_gone: coin is gone"


def test_a_stop_of_one_process_reaches_the_others(three):
    assert three["stop"] == ["stopped"] * 3


@pytest.mark.slow
def test_slurm_tells_the_processes_without_flags(tmp_path):
    def slurm(i):
        return {
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(i),
            "SLURM_LOCALID": str(i),
        }

    found = run("values", 2, tmp_path, variables=slurm)["values"]
    assert [own["index"] for own in found] == [[0, 1]] * 2


def test_one_process_agrees_with_itself():
    value = {"array": np.zeros(2)}
    assert processes.gather(value) == [value]
    assert processes.broadcast(value) is value
    assert processes.is_writer() and not processes.is_stop_requested()
    assert processes.own_part(5) == range(5)
    processes.check_equal({"seed": "1"})
    with processes.writer_first():
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 2, 0), "--coordinator is missing"),
        (("localhost:1", None, 0), "--num_processes is missing"),
        (("localhost", 2, 0), "expected HOST:PORT"),
        (("localhost:12345", 2, 5), "expected a number from 0 to below --num_processes=2"),
    ],
)
def test_wrong_flags_of_a_process_are_refused(arguments, message):
    with pytest.raises(processes.ProcessesError, match=message):
        cluster.connect(*arguments)


def test_without_flags_and_without_a_cluster_a_run_has_one_process():
    cluster.connect(None, None, None)
    assert processes.count() == 1


def test_processes_that_the_caller_has_connected_are_joined(monkeypatch):
    """Checks a Python program that calls `jax.distributed.initialize` and then `train`."""
    runtime = types.SimpleNamespace(client=object(), process_id=1, num_processes=2)
    monkeypatch.setattr(cluster.distributed, "global_state", runtime)
    monkeypatch.setattr(processes, "_state", processes._State())
    process_setup.prepare()
    assert (processes.index(), processes.count()) == (1, 2)
