r"""Disturbs deep search and web navigation with a scripted agent; appends to results.jsonl.

  JAX_PLATFORMS=cpu python experiments/2026-11-22_faults/plays.py --repeat=2
  python -m tests.faults.report

The agent, the proxy, the environments and the kills are imported from tests/faults.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from absl import logging  # noqa: E402

from agentgym_envs.data_folder import VARIABLE  # noqa: E402
from agentgym_jax.client.embedded import EmbeddedServers  # noqa: E402
from tests.envs import topics  # noqa: E402
from tests.faults import plays, processes  # noqa: E402
from tests.faults.proxy import Fault, FaultProxy, Schedule  # noqa: E402

RESULTS = pathlib.Path(__file__).with_name("results.jsonl")
KILLS = 3
TASKS = {"searchqa": range(len(topics.QUESTIONS)), "webarena": [*range(6)] * 2}
STEPS = {"searchqa": 240, "webarena": 36}  # steps of all episodes in the undisturbed run


@contextlib.contextmanager
def serving(name, folder):
    """Starts the server of an environment as in the tests."""
    arguments = {
        "searchqa": {
            "options": {
                "searchqa": topics.options(
                    folder, search_cost=0.1, free_searches=0, format_score=0.2
                )
            }
        },
        "webarena": {"modules": {"webarena": "tests.faults.web_tally"}},
    }
    with EmbeddedServers([name], **arguments[name]) as servers:
        yield servers


def inject_faults(name, seed, servers, proxy):
    """Injects every type of fault, each in one of thirty requests of a route, and an occasional
    stall.
    """
    deal = Schedule(seed, set(Fault) - {Fault.STALL}, calm=20, routes=plays.ROUTES)
    draw = random.Random(seed)

    def schedule(route):
        return Fault.STALL if route == "/step" and draw.random() < 0.005 else deal(route)

    proxy.schedule = schedule
    return proxy.injected


def kill_processes(victim):
    """Returns a disturbance that sends SIGKILL to the process found by `victim`, before the server
    receives some of the steps.
    """

    def disturb(name, seed, servers, proxy):
        points = set(random.Random(seed).sample(range(3, STEPS[name] - 6), KILLS))
        killed = collections.Counter()

        def schedule(route):
            if route == "/step" and proxy.requests[route] in points:
                # the process may be restarting at this moment
                with contextlib.suppress(ValueError):
                    os.kill(victim(servers.pids[name]), signal.SIGKILL)
                    killed[f"kill -9 of the {victim.__name__}"] += 1
            return None

        proxy.schedule = schedule
        return killed

    return disturb


def server(pid):
    """Returns the process id of the server."""
    return pid


def browser(pid):
    """Returns the process id of the server's Chromium."""
    return processes.browser(pid).pid


def site(pid):
    """Returns the process id of the server's site."""
    return processes.site(pid).pid


PARTS = {
    "searchqa": (inject_faults, kill_processes(server)),
    "webarena": (
        inject_faults,
        kill_processes(browser),
        kill_processes(site),
        kill_processes(server),
    ),
}


def record(part, seed, injected, played, undisturbed, **more):
    """Appends one row to the results; `identical` is True if the episodes equal the undisturbed
    ones.
    """
    row = {
        "part": part,
        "seed": seed,
        "injected": {str(kind): count for kind, count in injected.items()},
        "identical": played.episodes == undisturbed,
        "episodes": len(undisturbed),
        "episodes_lost": sum(
            episode["outcome"] == "env_error" or episode["sample"] > 0
            for episode in played.episodes
        ),
        "counted": dict(played.errors),
        **more,
    }
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--parts", default=",".join(PARTS))
    args = parser.parse_args()
    logging.set_verbosity(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        for name in args.parts.split(","):
            with serving(name, pathlib.Path(folder)) as servers:
                options = {"servers": servers, "step_timeout_s": 10.0}
                undisturbed = plays.play(servers.urls[name], name, TASKS[name]).episodes
                for seed in range(args.repeat):
                    for disturb in PARTS[name]:
                        proxy = FaultProxy(servers.urls[name], lambda route: None)
                        injected = disturb(name, seed, servers, proxy)
                        with proxy:
                            played = plays.play(proxy.url, name, TASKS[name], **options)
                        more = {}
                        if disturb is inject_faults:
                            expected = plays.expected_errors(proxy.delivered)
                            asked = proxy.delivered["/expert_action", "connection"]
                            more = {"expected": dict(expected), "questions_broken": asked}
                        record(name, seed, injected, played, undisturbed, **more)


if __name__ == "__main__":
    main()
