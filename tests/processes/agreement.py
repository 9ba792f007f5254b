"""Uses the functions of `agentgym_jax.mesh.processes` in one of several processes.

python agreement.py SCENARIO[+SCENARIO...] [--coordinator=... --num_processes=... --process_id=...]

The last line is a JSON object with the result of each scenario.
"""

import json
import sys
import time

import jax
import numpy as np

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.data.tasks import Task
from agentgym_jax.mesh import cluster, processes
from agentgym_jax.rollout import shared


def values():
    """Exchanges values; returns those that this process has."""
    index = processes.index()
    gathered = [
        processes.gather({"index": index, "array": np.full(3, index, np.int8)}) for _ in range(3)
    ]
    order = []
    with processes.writer_first():
        order = processes.broadcast(None, "unused") or [time.monotonic()]
    return {
        "index": [value["index"] for value in gathered[-1]],
        "arrays": [value["array"].tolist() for value in gathered[-1]],
        "types": sorted({str(value["array"].dtype) for value in gathered[0]}),
        "broadcast": processes.broadcast(f"from {index}"),
        "entered": processes.gather(order[0]),
        "part": list(processes.own_part(7)),
        "places": shared.own_places([Task("coin", i, "a") for i in (5, 5, 3, 9, 3)]),
    }


def difference():
    """Compares facts of which one differs."""
    processes.check_equal({"seed": "1"})
    rates = ["1e-3", "1e-4"]
    processes.check_equal({"seed": "1", "learning rate": rates[processes.index() > 0]})


def failure():
    """Fails in process 1 while the others wait for it."""
    with processes.announcing_failures():
        if processes.index() == 1:
            raise OSError("the disk is full")
        processes.gather(None)


def outage():
    """Loses the environment of process 1."""

    def collect():
        if processes.index() == 1:
            raise ServerUnavailable(EnvCause.SERVER_GONE, "coin is gone")
        return [], shared.CollectStatistics({})

    shared.gather_episodes(collect)


def stop():
    """Requests a stop in process 1; waits until this process knows it."""
    processes.gather(None)
    if processes.index() == 1:
        processes.request_stop()
    while not processes.is_stop_requested():
        time.sleep(0.01)
    return "stopped"


def main():
    """Runs the scenarios of the command line."""
    options = dict(argument[2:].split("=") for argument in sys.argv[2:])
    numbers = (int(options[name]) if options else None for name in ("num_processes", "process_id"))
    cluster.connect(options.get("coordinator"), *numbers)
    found = {}
    for name in sys.argv[1].split("+"):
        try:
            found[name] = globals()[name]()
        except (processes.ProcessesError, ServerUnavailable, OSError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
