r"""Disturbs small runs `--repeat` times, and writes the numbers of injected, survived and lost
disturbances.

  JAX_PLATFORMS=cpu python experiments/2026-11-22_faults/run.py --repeat=5 --folder=runs/faults
  python -m tests.faults.report

The runs, the proxy and the kills are imported from tests/faults.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
from absl import logging  # noqa: E402

from agentgym_jax.client.errors import ServerUnavailable  # noqa: E402
from agentgym_jax.jobs import job  # noqa: E402
from tests.faults import kills, runs  # noqa: E402
from tests.faults.proxy import Fault, FaultProxy, Schedule  # noqa: E402
from tests.faults.sickness import SICK, SICK_OPTIONS, after_the_first_step  # noqa: E402

RESULTS = pathlib.Path(__file__).with_name("results.jsonl")


def record(part, seed, injected, workdir, reference, **more):
    """Appends one row to the results; `identical` is True if the run ended like the undisturbed
    run.
    """
    try:
        runs.assert_same(workdir, reference)
        is_identical = True
    except AssertionError as error:
        is_identical = False
        more["difference"] = str(error)[:300]
    row = {
        "part": part,
        "seed": seed,
        "injected": {str(kind): count for kind, count in injected.items()},
        "identical": is_identical,
        "episodes_lost": runs.lost_episodes(workdir),
        **more,
    }
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def train_behind(proxy, workdir, steps, **changes):
    config = runs.config(proxy.url, steps=steps)
    for section, options in changes.items():
        config[section] |= options
    runs.train(config, workdir)


def proxied(args, seed, servers, reference, workdir):
    """Injects all types of proxy faults in one run and checks that the run counts them exactly."""
    deal = Schedule(seed, set(Fault) - {Fault.STALL}, calm=args.calm)
    draw = random.Random(seed)
    last = workdir / f"trajectories/step_{args.steps:06d}.jsonl"

    def schedule(route):
        if last.exists():
            return None
        if route == "/step" and draw.random() < 0.005:
            return Fault.STALL
        return deal(route)

    with FaultProxy(servers.urls["tally"], schedule) as proxy:
        train_behind(proxy, workdir, args.steps, client={"step_timeout_s": 3.0})
    counted, expected = runs.env_errors(workdir), runs.expected_errors(proxy.delivered)
    record(
        "proxy",
        seed,
        proxy.injected,
        workdir,
        reference,
        requests=sum(proxy.requests.values()),
        counted=dict(counted),
        counted_exactly=counted == expected,
    )


def server_killed(args, seed, servers, reference, workdir):
    """Kills the server with `kill -9` in the middle of steps and restarts it on its port."""
    draw = random.Random(seed)
    points = {draw.randrange(5, 25 * args.steps) for _ in range(args.steps)}
    killed = collections.Counter()

    def schedule(route):
        if route == "/step" and proxy.requests[route] in points:
            points.discard(proxy.requests[route])
            os.kill(servers.pids["tally"], signal.SIGKILL)
            killed["kill -9 of the server"] += 1
            threading.Timer(draw.uniform(0, 1), servers.ensure_alive).start()
        return None

    proxy = FaultProxy(servers.urls["tally"], schedule)
    with proxy:
        train_behind(proxy, workdir, args.steps)
    counted = dict(runs.env_errors(workdir))
    record("server", seed, killed, workdir, reference, counted=counted)


def sick(args, seed, servers, reference, workdir):
    """Runs the trainer with a server that fails permanently; then runs the same command with a
    healthy server.
    """
    stops = []
    for name, sickness in SICK.items():
        schedule = after_the_first_step(workdir, sickness)
        with FaultProxy(servers.urls["tally"], schedule) as proxy:
            with contextlib.suppress(ServerUnavailable):
                train_behind(proxy, workdir, args.steps, **SICK_OPTIONS)
                continue
        stops.append(name)
        assert len(runs.lines(workdir)) == 1, "steps were made without episodes"
    runs.train(runs.config(servers.urls["tally"], steps=args.steps), workdir)
    injected = collections.Counter(dict.fromkeys(SICK, 1))
    record("sick server", seed, injected, workdir, reference, stopped_cleanly=len(stops))


def killed(args, seed, servers, reference, workdir):
    """Sends SIGKILL and SIGTERM to the trainer at random points, also during a checkpoint."""
    draw = random.Random(seed)
    kinds = ",".join(str(draw.randrange(len(kills.KINDS))) for _ in range(args.kills))
    command = [sys.executable, "-m", "tests.faults.kills", servers.urls["tally"], str(workdir)]
    command += [str(args.folder / "xla"), kinds, f"--seed={seed}", f"--steps={args.steps}"]
    command += ["--window=2"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    injected = json.loads(done.stdout.splitlines()[-1])
    record("trainer", seed, injected, workdir, reference)


PARTS = {"proxy": proxied, "server": server_killed, "sick": sick, "trainer": killed}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument(
        "--kills", type=int, default=4, help="number of kills of the trainer in one run"
    )
    parser.add_argument("--calm", type=int, default=20, help="undisturbed requests per ten faults")
    parser.add_argument("--parts", default=",".join(PARTS))
    args = parser.parse_args()
    args.folder = args.folder.absolute()
    args.folder.mkdir(parents=True, exist_ok=True)
    logging.set_verbosity(logging.ERROR)
    jax.config.update("jax_compilation_cache_dir", str(args.folder / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_disable_most_optimizations", True)
    job.build_layouts = lambda mesh: (None, None)
    with runs.serving() as servers:
        reference = args.folder / "undisturbed"
        runs.train(runs.config(servers.urls["tally"], steps=args.steps), reference)
        for seed in range(args.first, args.first + args.repeat):
            for name in args.parts.split(","):
                PARTS[name](args, seed, servers, reference, args.folder / f"{name}{seed}")


if __name__ == "__main__":
    main()
