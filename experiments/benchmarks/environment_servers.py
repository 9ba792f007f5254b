r"""Measures speed, CPU and memory of one environment server, optionally compared with another
server of the same protocol.

  python experiments/benchmarks/environment_servers.py --env=textcraft --threads=1,8,64 --repeat=3 \
      --versus-command="textcraft --host 127.0.0.1 --port {port}" --out=textcraft.json

Our server is started for the measurement. The other server is started by --versus-command, or is
already running at --versus-url. Only loopback addresses are allowed. Both servers are measured
alternately, so that other load affects both equally: compare ratios, and CPU per step rather than
steps/s. The clients are threads of this process. `client` is their CPU time per step in ms. If it
is near 1000 / (steps/s), the clients limit the speed.

In a run of T threads, each thread creates a session and resets it; both calls are timed, with all T
threads concurrent. Then all threads together take --steps steps from a script of valid and invalid
actions, and close their sessions. An episode that ends is reset during the steps; `resets` counts
these resets. CPU and resident memory are summed over the server's process tree; shared pages
count for each process.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.embedded import EmbeddedServers

TIMEOUT_S = 120.0
MAX_THREADS, MAX_STEPS, MAX_EPISODES = 256, 100_000, 4096
OPENERS = 8  # threads that create the sessions of --episodes
TASKS = {"textcraft": 544, "babyai": 3600, "sciworld": 4639, "maze": 25, "wordle": 40}
# In most tasks roughly half of these actions have an effect. The last action of each list is always
# rejected.
ACTIONS = {
    "textcraft": (
        "inventory",
        "get 1 cobblestone",
        "get 2 oak log",
        "craft 4 oak planks using 1 oak log",
        "get 4 string",
        "craft 1 white wool using 4 string",
        "get 1 philosopher's stone",
        "look around",
    ),
    "babyai": (
        "turn left",
        "move forward",
        "turn right",
        "move forward",
        "check available actions",
        "go to red ball 1",
        "toggle",
        "fly",
    ),
    "sciworld": (
        "look around",
        "open door to hallway",
        "go to hallway",
        "inventory",
        "open door to kitchen",
        "go to kitchen",
        "open cupboard",
        "pick up thermometer",
        "go to hallway",
        "open door to bedroom",
        "go to bedroom",
        "fly",
    ),
    "maze": ("move up", "move down", "move left", "move right", "move", "jump"),
    "wordle": ("s h i r e", "p a n i c", "o t h e r", "z z z z z", "robin", "12"),
}
# Keys of a measured run by table column. Columns other than counts are medians over the repeats.
COLUMNS = {
    "steps/s": "steps_per_s",
    "p50 ms": "p50_ms",
    "p95 ms": "p95_ms",
    "CPU ms": "cpu_ms_per_step",
    "client": "client_cpu_ms_per_step",
    "create ms": "create_p50_ms",
    "reset ms": "reset_p50_ms",
    "RSS MiB": "rss_mib",
    "resets": "resets",
    "errors": "errors",
}


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server; `pid` is 0 if its processes are unknown."""

    name: str
    url: str
    pid: int

    def processes(self) -> list[psutil.Process]:
        """Returns the server's process and its descendants, or no process if `pid` is 0."""
        if not self.pid:
            return []
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        """Returns the user and system CPU seconds of the process tree so far, including ended
        children.
        """
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def rss_mib(self) -> float:
        total = 0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 2**20


class Session:
    """One client with one session, over one connection per call or over a persistent connection."""

    def __init__(self, server: Server, env: str, keepalive: bool):
        parts = urllib.parse.urlsplit(server.url)
        self._row = ORIGINALS[env]
        prefix = parts.path.rstrip("/")
        self._prefix = prefix if prefix == self._row.path_prefix else self._row.path_prefix
        self._keepalive = keepalive
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=TIMEOUT_S
        )
        self.errors = 0
        self.number: int | None = None

    def create(self) -> None:
        body = self._post("/create", dict(self._row.create_body))
        if "id" not in body:
            raise RuntimeError(f"no session from {self._connection.host}: {body}")
        self.number = body["id"]

    def reset(self, task: int) -> None:
        self._post("/reset", {"id": self.number, self._row.reset_key: task})

    def step(self, action: str) -> bool:
        """Takes a step and returns True at the end of the episode."""
        body = self._post("/step", {"id": self.number, "action": action})
        return bool(body.get("done", True))

    def close(self) -> None:
        if self._row.has_close:
            self._post("/close", {"id": self.number})
        self._connection.close()

    def _post(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if not self._keepalive:
            headers["Connection"] = "close"
        self._connection.request("POST", self._prefix + path, json.dumps(request), headers)
        with self._connection.getresponse() as response:
            body = json.loads(response.read()) if response.status == 200 else {}
        if not self._keepalive:
            self._connection.close()
        self.errors += response.status != 200 or (isinstance(body, dict) and "error" in body)
        return body if isinstance(body, dict) else {}


def timed(seconds: list[float], call, *arguments) -> Any:
    """Calls `call`, appends the duration to `seconds` and returns the result."""
    started = time.perf_counter()
    result = call(*arguments)
    seconds.append(time.perf_counter() - started)
    return result


def side_by_side(work, threads: int) -> float:
    """Runs `work(0)` ..

    `work(threads - 1)` concurrently; returns the wall seconds until all have ended.
    """
    failures: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except (OSError, http.client.HTTPException, RuntimeError, ValueError) as failure:
            failures.append(failure)

    workers = [threading.Thread(target=guarded, args=(k,)) for k in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - started


def percentile_ms(seconds: Sequence[float], share: float) -> float:
    ordered = sorted(seconds)
    return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def measure(server: Server, args: argparse.Namespace, threads: int, repeat: int) -> dict[str, Any]:
    """Measures one run, in which each session is created, reset, stepped and closed."""
    script, num_tasks = ACTIONS[args.env], TASKS[args.env]
    sessions = [Session(server, args.env, args.keepalive) for _ in range(threads)]
    creates, resets, late_resets, steps = ([[] for _ in sessions] for _ in range(4))
    each = max(1, args.steps // threads)

    def task(k: int, i: int) -> int:
        return (7919 * repeat + 101 * k + 13 * i) % num_tasks

    def play(k: int) -> None:
        for i in range(each):
            if timed(steps[k], sessions[k].step, script[(i + k) % len(script)]):
                timed(late_resets[k], sessions[k].reset, task(k, i + 1))

    side_by_side(lambda k: timed(creates[k], sessions[k].create), threads)
    side_by_side(lambda k: timed(resets[k], sessions[k].reset, task(k, 0)), threads)
    server_cpu, client_cpu = server.cpu_s(), time.process_time()
    wall_s = side_by_side(play, threads)
    server_cpu, client_cpu = server.cpu_s() - server_cpu, time.process_time() - client_cpu
    rss_mib = server.rss_mib()
    side_by_side(lambda k: sessions[k].close(), threads)

    latencies = [s for each_thread in steps for s in each_thread]
    return {
        "steps": len(latencies),
        "steps_per_s": len(latencies) / wall_s,
        "p50_ms": percentile_ms(latencies, 0.5),
        "p95_ms": percentile_ms(latencies, 0.95),
        "cpu_ms_per_step": 1e3 * server_cpu / len(latencies),
        "client_cpu_ms_per_step": 1e3 * client_cpu / len(latencies),
        "create_p50_ms": percentile_ms(sum(creates, []), 0.5),
        "create_p95_ms": percentile_ms(sum(creates, []), 0.95),
        "reset_p50_ms": percentile_ms(sum(resets, []), 0.5),
        "reset_p95_ms": percentile_ms(sum(resets, []), 0.95),
        "resets": sum(map(len, late_resets)),
        "rss_mib": rss_mib,
        "errors": sum(session.errors for session in sessions),
        "load_average": os.getloadavg()[0],
    }


def measure_memory(server: Server, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the resident memory with --episodes concurrent episodes, each reset to a different
    task.
    """
    count, num_tasks = args.episodes, TASKS[args.env]
    sessions = [Session(server, args.env, args.keepalive) for _ in range(count)]
    before = server.rss_mib()

    def open_some(k: int) -> None:
        for i in range(k, count, OPENERS):
            sessions[i].create()
            sessions[i].reset(i * num_tasks // count)

    try:
        seconds = side_by_side(open_some, OPENERS)
        after = server.rss_mib()
    finally:
        opened = [session for session in sessions if session.number is not None]
        for session in opened:
            session.close()
    grown = max(after - before, 1e-3)
    return {
        "episodes": count,
        "open_and_reset_s": seconds,
        "rss_before_mib": before,
        "rss_after_mib": after,
        "mib_per_episode": after / count,
        "mib_per_further_episode": grown / count,
        "episodes_per_gib": 1024 * count / after if after else 0.0,
        "errors": sum(session.errors for session in sessions),
    }


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the median of every number over the runs; errors and resets are summed."""
    totals = ("errors", "resets", "steps")
    return {
        key: (sum if key in totals else statistics.median)(run[key] for run in runs)
        for key in runs[0]
    }


def ratios(ours: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Returns the other server's median divided by ours, for the columns that both have."""
    keys = [key for key in COLUMNS.values() if key not in ("errors", "resets")]
    return {key: other[key] / ours[key] for key in keys if ours[key] and other[key]}


@contextlib.contextmanager
def running(args: argparse.Namespace) -> Iterator[list[Server]]:
    """Yields our server and, if one is requested, the other server."""
    arguments = [f"--workers={args.workers}", f"--capacity={max(1024, 2 * args.episodes)}"]
    arguments += shlex.split(args.arguments)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(EmbeddedServers([args.env], arguments=arguments))
        servers = [Server("ours", ours.urls[args.env], ours.pids[args.env])]
        if args.versus_command:
            servers.append(stack.enter_context(started(args.versus_command)))
        elif args.versus_url:
            servers.append(Server("other", args.versus_url, args.versus_pid))
        yield servers


@contextlib.contextmanager
def started(command: str) -> Iterator[Server]:
    """Starts a server by its command line, with a free port in place of `{port}`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        shlex.split(command.replace("{port}", str(port))),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # lets all processes of the server be ended together
    )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"no server on port {port} (status {process.poll()}): {command}")
            time.sleep(0.2)
        yield Server("other", f"http://127.0.0.1:{port}", process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def table(rows: Sequence[tuple[str, dict[str, Any]]], columns: dict[str, str]) -> str:
    """Returns the rows as aligned text; the cell of a missing number is empty."""
    lines = [["", *columns]]
    for name, values in rows:
        cells = [f"{values[key]:.4g}" if key in values else "" for key in columns.values()]
        lines.append([name, *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def run(args: argparse.Namespace, servers: Sequence[Server]) -> dict[str, Any]:
    """Runs all measurements and prints each table as soon as it is complete."""
    result: dict[str, Any] = {
        "command": shlex.join(sys.argv),
        "environment": args.env,
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "load": [],
        "memory": {},
    }
    # The first call of each server loads and compiles, so it is not measured.
    for server in servers:
        measure(server, with_changes(args, steps=len(ACTIONS[args.env])), 1, 0)
    # Memory is measured first, because later episodes would reuse memory that earlier ones freed.
    if args.episodes:
        result["memory"] = {server.name: measure_memory(server, args) for server in servers}
        keys = next(iter(result["memory"].values()))
        print(f"\n{args.episodes} live episodes")
        print(table(list(result["memory"].items()), {key: key for key in keys}), flush=True)
    for threads in args.threads:
        runs: dict[str, list[dict[str, Any]]] = {server.name: [] for server in servers}
        for repeat in range(args.repeat):
            for server in servers:
                runs[server.name].append(measure(server, args, threads, repeat))
        row = {name: medians(runs[name]) for name in runs}
        entry: dict[str, Any] = {"threads": threads, "medians": row, "runs": runs}
        if "other" in row:
            entry["ratio"] = ratios(row["ours"], row["other"])
        result["load"].append(entry)
        shown = list(row.items()) + ([("other/ours", entry["ratio"])] if "ratio" in entry else [])
        print(f"\n{threads} threads, median of {args.repeat}")
        print(table(shown, COLUMNS), flush=True)
    return result


def with_changes(args: argparse.Namespace, **changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), **changes})


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses and checks the command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--env", required=True, choices=list(ACTIONS), help="environment")
    add("--threads", default="1,8,64", help="concurrent clients, one run per number (%(default)s)")
    add("--steps", type=int, default=1000, help="steps of all threads in a run (%(default)s)")
    add("--repeat", type=int, default=3, help="runs of each server (%(default)s)")
    add("--keepalive", action="store_true", help="use persistent connections")
    add("--workers", type=int, default=1, help="worker processes of our server (%(default)s)")
    add("--arguments", default="", help='further arguments of our server, such as "--compat"')
    add(
        "--episodes",
        type=int,
        default=0,
        help="concurrent episodes of the memory measurement; 0: none",
    )
    add("--versus-command", default="", help="command that starts the other server on {port}")
    add("--versus-url", default="", help="address of the other server if it is already running")
    add("--versus-pid", type=int, default=0, help="process id of that server, for CPU and memory")
    add("--out", type=pathlib.Path, help="JSON file with every run")
    args = parser.parse_args(argv)
    try:
        args.threads = [int(part) for part in args.threads.split(",")]
    except ValueError:
        parser.error(f"--threads={args.threads}: expected numbers separated by commas")
    if not all(1 <= threads <= MAX_THREADS for threads in args.threads):
        parser.error(f"--threads must be 1 .. {MAX_THREADS}")
    if not (1 <= args.steps <= MAX_STEPS and 0 <= args.episodes <= MAX_EPISODES):
        parser.error(f"--steps is at most {MAX_STEPS}, --episodes at most {MAX_EPISODES}")
    if not (1 <= args.repeat <= 100 and args.workers >= 1):
        parser.error("--repeat must be 1 .. 100 and --workers at least 1")
    if args.versus_command and args.versus_url:
        parser.error("give --versus-command or --versus-url, not both")
    host = urllib.parse.urlsplit(args.versus_url).hostname
    if args.versus_url and host not in ("127.0.0.1", "localhost", "::1"):
        parser.error(f"--versus-url={args.versus_url}: only loopback addresses are measured")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Measures the servers, prints the tables and writes the file."""
    args = parse(argv)
    with running(args) as servers:
        result = run(args, servers)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
