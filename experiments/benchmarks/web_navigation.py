r"""Measures steps, resets and memory of the web navigation server with real sites, a real browser
and parallel episodes.

  python experiments/benchmarks/web_navigation.py --parallel=1,8 --workers=2 --steps=80 --out=web.json

Starts a server (`python -m agentgym_envs webarena`, embedded sites). --parallel concurrent threads
run the scripted solutions over HTTP, each in a separate session, until --steps actions were taken.
A thread starts the next task when an episode ends. Times are measured by the client. CPU time
covers the server's whole process tree (server, workers, browsers, sites). Memory is the sum of the tree's
proportional set sizes (PSS: a page that n processes share counts 1/n in each), read while all
episodes are open.

On a busy machine compare CPU seconds per step rather than steps/s; every line has the load average.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

TIMEOUT_S = 300.0
START_S = 900.0  # the first start builds the sites
MAX_PARALLEL, MAX_STEPS = 64, 10_000
_READY = re.compile(r"ready on http://127\.0\.0\.1:(\d+)")
# Words in command lines that identify the parts of the server's process tree.
_PARTS = {
    "browser": ("chrom", "playwright/driver"),
    "sites": ("agentgym_sites",),
    "workers": ("agentgym_envs.base.worker",),
}


class Session:
    """One client with one session on the server."""

    def __init__(self, port: int):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self.number = self.post("/create", {})["env_idx"]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        self._connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json"}
        )
        return self._answer(path)

    def get(self, path: str) -> Any:
        self._connection.request("GET", f"{path}?env_idx={self.number}")
        return self._answer(path)

    def _answer(self, path: str) -> Any:
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path} has status {response.status}: {body[:300]!r}")
        return json.loads(body)

    def close(self) -> None:
        self.post("/close", {"env_idx": self.number})
        self._connection.close()


class Run:
    """State shared by the threads of one measurement."""

    def __init__(self, port: int, tasks: Sequence[int], steps: int):
        self.port = port
        self.steps_left = steps
        self.step_s: list[float] = []
        self.reset_s: list[float] = []
        self.solved = 0
        self.ended = 0
        self.problems: list[str] = []
        self._tasks = iter(tasks * 1000)
        self._guard = threading.Lock()

    def play(self) -> None:
        """Runs episodes until the measurement has no steps left."""
        session = Session(self.port)
        while self.steps_left > 0:
            with self._guard:
                task = next(self._tasks)
            try:
                self._episode(session, task)
            except RuntimeError as error:
                self.problems.append(f"task {task}: {error}")
                session = Session(self.port)
        session.close()

    def _episode(self, session: Session, task: int) -> None:
        began = time.perf_counter()
        session.post("/reset", {"env_idx": session.number, "idx": task, "seed": 0})
        self.reset_s.append(time.perf_counter() - began)
        while self.steps_left > 0:
            action = session.get("/expert_action")["action"]
            with self._guard:
                self.steps_left -= 1
            began = time.perf_counter()
            answer = session.post("/step", {"env_idx": session.number, "action": action})
            self.step_s.append(time.perf_counter() - began)
            if answer["terminated"]:
                self.ended += 1
                self.solved += answer["reward"] == 1.0
                return


@contextlib.contextmanager
def server(workers: int, sites: str) -> Iterator[tuple[int, psutil.Process, float]]:
    """Yields the server's port, its process and the seconds of its start."""
    command = [
        sys.executable,
        "-m",
        "agentgym_envs",
        "webarena",
        "--port=0",
        f"--workers={workers}",
    ]
    command += [f"--option=sites={sites}", f"--parent-pid={os.getpid()}", "--step-seconds=120"]
    command += ["--busy-seconds=300"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = _READY.search(process.stdout.readline())
        if found is None:
            raise SystemExit("the server did not start; its words are above")
        yield int(found[1]), psutil.Process(process.pid), time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(60)


def tree(root: psutil.Process) -> list[psutil.Process]:
    return [root, *root.children(recursive=True)]


def cpu_s(root: psutil.Process) -> float:
    total = 0.0
    for process in tree(root):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def pss_mib(root: psutil.Process) -> dict[str, float]:
    """Returns the memory of each part of the process tree in MiB, and the total."""
    found = dict.fromkeys([*_PARTS, "server"], 0.0)
    for process in tree(root):
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            part = next(
                (p for p, marks in _PARTS.items() if any(m in words for m in marks)), "server"
            )
            found[part] += process.memory_full_info().pss / 2**20
    return {**found, "all": sum(found.values())}


def measure(
    port: int, root: psutil.Process, parallel: int, steps: int, tasks: Sequence[int]
) -> Any:
    """Measures one run with a given number of parallel episodes."""
    run = Run(port, list(tasks), steps)
    threads = [threading.Thread(target=run.play) for _ in range(parallel)]
    cpu, began = cpu_s(root), time.perf_counter()
    memory: dict[str, float] = {}
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(2.0)
        if run.steps_left > 0:
            now = pss_mib(root)
            memory = now if now["all"] > memory.get("all", 0.0) else memory
    wall = time.perf_counter() - began
    steps_done = len(run.step_s)
    return {
        "parallel": parallel,
        "steps": steps_done,
        "steps_per_s": round(steps_done / wall, 2),
        "step_p50_s": round(statistics.median(run.step_s), 3),
        "step_p95_s": round(sorted(run.step_s)[int(0.95 * (steps_done - 1))], 3),
        "resets": len(run.reset_s),
        "reset_p50_s": round(statistics.median(run.reset_s), 3),
        "cpu_s_per_step": round((cpu_s(root) - cpu) / steps_done, 3),
        "pss_mib": {part: round(mib) for part, mib in memory.items()},
        "episodes_ended": run.ended,
        "solved": run.solved,
        "problems": run.problems[:5],
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parallel", default="1,8", help="concurrent episodes, one run per number")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of the server")
    parser.add_argument("--steps", type=int, default=80, help="steps of all threads in a run")
    parser.add_argument("--sites", default="all", help="option `sites` of the environment")
    parser.add_argument("--out", type=pathlib.Path, help="file that gets the results as JSON lines")
    args = parser.parse_args()
    counts = [int(number) for number in args.parallel.split(",")]
    if not all(1 <= n <= MAX_PARALLEL for n in counts) or not 1 <= args.steps <= MAX_STEPS:
        parser.error(f"--parallel is at most {MAX_PARALLEL}, --steps at most {MAX_STEPS}")
    with server(args.workers, args.sites) as (port, root, start_s):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        connection.request("GET", "/tasks")
        number = len(json.loads(connection.getresponse().read()))
        # Taking every 13th task spreads the tasks evenly over the sites, because templates have
        # fewer than 13 instances.
        tasks = [i * 13 % number for i in range(number)]
        for parallel in counts:
            result = measure(port, root, parallel, args.steps, tasks)
            result |= {"workers": args.workers, "sites": args.sites, "start_s": round(start_s, 1)}
            line = json.dumps(result)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            if args.out:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
